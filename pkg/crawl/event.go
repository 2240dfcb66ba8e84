package crawl

import "time"

// Event is what a webhook posts: the form of Standard Webhooks 1.0, "Payload structure".
// It is a snapshot: each try of a delivery says the same, whatever became of the job.
type Event struct {
	Type EventType `json:"type"`
	// Timestamp is when it happened, by the clock of the store: RFC 3339, UTC, with
	// milliseconds.
	Timestamp string    `json:"timestamp"`
	Data      EventData `json:"data"`
}

// EventData is a job at the time of an event. Its counts add up as those of a [Job], whose
// fields they are; what is null there, is here.
type EventData struct {
	JobID      string      `json:"job_id"`
	State      State       `json:"state"`
	StopReason *StopReason `json:"stop_reason"`
	Error      *string     `json:"error"`

	Total     int64 `json:"total"`
	Processed int64 `json:"processed"`
	Accepted  int64 `json:"accepted"`
	Failed    int64 `json:"failed"`
	Queued    int64 `json:"queued"`
	Active    int64 `json:"active"`
	Deferred  int64 `json:"deferred"`
	Skipped   int64 `json:"skipped"`
	Cancelled int64 `json:"cancelled"`
	Records   int64 `json:"records"`
	Bytes     int64 `json:"bytes"`

	CreatedAt string  `json:"created_at"`
	StartedAt *string `json:"started_at"`
	EndedAt   *string `json:"ended_at"`
	ExpiresAt *string `json:"expires_at"`

	Tags []string `json:"tags"`
}

// NewEvent makes the event that tells of j at the given time.
func NewEvent(of EventType, at time.Time, j *Job) Event {
	return Event{Type: of, Timestamp: Timestamp(at), Data: EventData{
		JobID: j.ID, State: j.State, StopReason: unlessZero(j.StopReason), Error: unlessZero(j.Error),
		Total: j.Total, Processed: j.Processed, Accepted: j.Accepted, Failed: j.Failed,
		Queued: j.Queued, Active: j.Active, Deferred: j.Deferred, Skipped: j.Skipped, Cancelled: j.Cancelled,
		Records: j.Records, Bytes: j.Bytes,
		CreatedAt: Timestamp(j.CreatedAt), StartedAt: timeUnlessZero(j.StartedAt), EndedAt: timeUnlessZero(j.EndedAt),
		ExpiresAt: timeUnlessZero(j.ExpiresAt), Tags: append([]string{}, j.Tags...),
	}}
}

// Timestamp writes a time as the whole contract does: RFC 3339, in UTC, with milliseconds,
// so that times also sort as text.
func Timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func unlessZero[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func timeUnlessZero(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := Timestamp(t)
	return &s
}
