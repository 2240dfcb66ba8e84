// Package queue is the home of asynq. It is a doorbell and nothing more: a ring
// says "job J wants attention" and carries ids only. What there is to do, how
// often, and by whom is the store's; a ring that is lost, late or doubled
// changes no result, because the store rings again and fences every write.
//
// A ring is one asynq task. Its id is the job's for ring 0 and "job.n" for the
// others. The store never hands out a number twice, so that a second ring of
// one number can only be the first one, sent again.
//
// The payload has a version, and so has the type of a task by its name: a worker
// leaves what is newer than itself to others, see [ErrNewer].
//
// It is written for asynq v0.26.0 and holds its known defects off:
//
//   - a task that ends while Redis is away would run again: see
//     [redisconn.Detach];
//   - a Redis that was emptied would stay without the queue's name in
//     asynq:queues, so that the monitor answers "queue not found": the name is
//     written again every few seconds;
//   - a Redis that is down or out of memory would make each server spin at the
//     speed of the failure: its failing commands are slowed down;
//   - tasks that ran out of retries would fill the archive: the last failure
//     drops the ring, since the store rings again; what a person archives is kept
//     for a day, 1,000 of it at most, and keeps no ring from being made anew.
package queue
