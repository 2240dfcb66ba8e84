// Package store is all that the service remembers: jobs, their frontier, records,
// errors, host slots. Every change of state is one Lua script (scripts/*.lua, each
// under a header that is its contract), so that no reader ever sees half of one
// and no two workers can both win.
//
// The state of a URL is the container that holds it: a LIST of what is queued, a
// ZSET of what is leased (scored by the slice that holds it), a ZSET of what is
// deferred, hashes of records and errors by sequence number. Redis time is the
// clock, so that workers with wrong clocks cannot disturb a job.
//
// All keys of a tenant carry one hash tag and live on one shard, because a commit
// touches jobs, frontier, records and quotas in one step: the boundary of this
// package is the boundary of a transaction.
package store
