package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// JobEventKind says what a [JobEvent] tells of.
type JobEventKind string

// The kinds of events. The last of a job is always its end, or that it was removed.
const (
	JobChanged  JobEventKind = "status" // Job is set
	JobRecorded JobEventKind = "record" // Record is set
	JobFailed   JobEventKind = "error"  // Failure is set
	JobEnded    JobEventKind = "end"    // Job is set, as it ended
	JobRemoved  JobEventKind = "gone"   // the job and all it held were removed
)

// JobEvent is one event of a job. What its kind does not name is nil. Of a kind that a newer
// service has, all are.
type JobEvent struct {
	ID      string // where [Behind] goes on
	Kind    JobEventKind
	Job     *Job
	Record  *Record
	Failure *PageError
}

// EventsOption changes which events are read.
type EventsOption func(*following)

type following struct {
	last string
	only []string
}

// Behind goes on behind the event with the given [JobEvent.ID], after a restart of the reader say:
// what was recorded since is told, and nothing twice. Behind the end of a job there is nothing.
func Behind(id string) EventsOption { return func(f *following) { f.last = id } }

// Only leaves out the events of all other kinds, but for those that end a job.
func Only(kinds ...JobEventKind) EventsOption {
	return func(f *following) {
		for _, k := range kinds {
			f.only = append(f.only, string(k))
		}
	}
}

// Events follows a job to its end: its status whenever that has changed, each record and each
// failed page, in the order they were recorded. A connection that breaks is opened anew where it
// was, as often as calls are repeated, see [WithRetries]; an event in between begins the count
// anew. An error is the last that it yields. Each range over it begins anew.
func (c *Client) Events(ctx context.Context, id string, options ...EventsOption) iter.Seq2[JobEvent, error] {
	var of following
	for _, option := range options {
		option(&of)
	}
	return func(yield func(JobEvent, error) bool) {
		last := of.last
		for try := 1; ; try++ {
			begin := time.Now()
			body, err := c.openEvents(ctx, id, last, of.only)
			if err != nil {
				yield(JobEvent{}, err)
				return
			}
			over, cut := readEvents(ctx, body, func(e *JobEvent) bool {
				last, try = e.ID, 0
				return yield(*e, nil) && e.Kind != JobEnded && e.Kind != JobRemoved
			})
			if time.Since(begin) >= tryTimeout {
				try = 0 // the job was followed, and there was nothing to tell: the service ends a stream after a while
			}
			switch {
			case over:
				return
			case ctx.Err() != nil:
				cut = ctx.Err()
			case try <= c.retries && (cut == nil || errors.Is(cut, io.ErrUnexpectedEOF)):
				pause(ctx, jitter(max(1, try)))
				continue
			case cut == nil:
				cut = errNoEvents
			}
			yield(JobEvent{}, fmt.Errorf("%s: %w", aboutJob(eventsOf, id), cut))
			return
		}
	}
}

const eventsOf = "read events of"

// errNoEvents is why a service is given up that ends each stream as soon as it begins.
var errNoEvents = errors.New("the service ends the stream each time before any event")

// openEvents returns the stream behind the event last, "" for the first; nil when there is none
// to come.
func (c *Client) openEvents(ctx context.Context, id, last string, only []string) (io.ReadCloser, error) {
	q, err := ofJob(eventsOf, http.MethodGet, id, "/events")
	if err != nil {
		return nil, err
	}
	q.stream, q.last = true, last
	if len(only) > 0 {
		q.query = url.Values{"only": {strings.Join(only, ",")}}
	}
	var body io.ReadCloser
	err = c.do(ctx, q, func(resp *http.Response) error {
		if resp.StatusCode == http.StatusNoContent {
			return resp.Body.Close()
		}
		if got := media(resp); got != eventsType {
			return c.foreign(resp, nil, "it should be "+eventsType)
		}
		body = &download{body: resp.Body, call: q.call}
		return nil
	})
	return body, err
}

// eventsType is the media type of server-sent events (HTML standard, section 9.2).
const eventsType = "text/event-stream"

// readEvents hands each event to yield until the stream ends or breaks, which is the error; over
// says that no more is wanted. Of an event that was cut, what came is dropped.
func readEvents(ctx context.Context, body io.ReadCloser, yield func(*JobEvent) bool) (over bool, cut error) {
	if body == nil {
		return true, nil
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	stop := context.AfterFunc(ctx, func() { _ = body.Close() })
	defer stop()
	defer func() { _ = body.Close() }() // what was needed of it is read
	lines := bufio.NewScanner(&attended{body: body, giveUp: giveUp})
	lines.Buffer(make([]byte, firstLine), maxLine)
	var e JobEvent
	var data []byte
	for lines.Scan() {
		name, value, _ := bytes.Cut(lines.Bytes(), []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "id":
			e.ID = string(value)
		case "event":
			e.Kind = JobEventKind(value)
		case "data":
			data = append(data[:0], value...)
		}
		if len(lines.Bytes()) > 0 || len(data) == 0 {
			continue
		}
		if err := e.decode(data); err != nil {
			return false, err
		}
		if !yield(&e) {
			return true, nil
		}
		e, data = JobEvent{}, data[:0]
	}
	if errors.Is(context.Cause(ctx), errStalled) {
		return false, fmt.Errorf("%w: %w", errStalled, io.ErrUnexpectedEOF)
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return false, fmt.Errorf("an event has more than %d MiB", maxLine>>20)
	}
	return false, lines.Err()
}

func (e *JobEvent) decode(data []byte) error {
	var into any
	switch e.Kind {
	case JobChanged, JobEnded:
		e.Job = new(Job)
		into = e.Job
	case JobRecorded:
		e.Record = new(Record)
		into = e.Record
	case JobFailed:
		e.Failure = new(PageError)
		into = e.Failure
	default:
		return nil
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("an event %s is none: %s", printable(string(e.Kind)), printable(err.Error()))
	}
	return nil
}
