package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"example.com/trawl/pkg/crawl"
)

const (
	// eventsPoll is how often a stream looks at its job: what a person sees as at once, at one
	// status read of the store a second.
	eventsPoll = time.Second
	// eventsQuiet is after how long without an event a comment is sent: proxies cut what is silent
	// for a minute, and a client that is gone is noticed by it.
	eventsQuiet = 15 * time.Second
	// eventsMost bounds one stream, so that a key which was revoked reads no further for long. The
	// client comes back by itself where it was.
	eventsMost = 15 * time.Minute
	// eventsRetry is what a client is told to wait before it comes back.
	eventsRetry = 2 * time.Second

	// streamsMost and tenantStreams bound the streams of a process, and those of one tenant in it:
	// each costs the store a read a second for as long as its client likes.
	streamsMost   = 512
	tenantStreams = 64
)

// The kinds of events, as a client asks for them.
const (
	eventStatus = "status"
	eventRecord = "record"
	eventError  = "error"
	eventEnd    = "end"
	eventGone   = "gone"
)

type eventsInput struct {
	ID   string `path:"id" doc:"Identity of the job."`
	Only string `query:"only" example:"status,error" doc:"Which events are sent, joined by commas: status (the job's status whenever it has changed, at most once a second), record (each accepted page, as in /records), error (each failed page, as in /errors). Default: all. The last event is always end, with the final status, or gone, with a problem, when the job was removed."`
	Last string `header:"Last-Event-ID" doc:"Goes on behind the event with this id: what was recorded since is sent, nothing twice. A browser's EventSource sends it by itself when it connects anew. Behind the event end the answer is 204, on which it stops."`
}

type eventsOutput struct {
	ContentType string `header:"Content-Type"`
	Buffering   string `header:"X-Accel-Buffering"` // nginx holds back what it is not told to pass on
	Body        func(huma.Context)
}

// position is how far a stream has come: the number of the last record and of the last error, and
// whether the end was told. Its text is the id of an event, and says no more than /records and
// /errors do, so that a client may go on at any process, or after its restart.
type position struct {
	records, errors int64
	end             bool
}

func (p position) String() string {
	s := strconv.FormatInt(p.records, 10) + "-" + strconv.FormatInt(p.errors, 10)
	if p.end {
		s += "-end"
	}
	return s
}

// parsePosition reads what String returned, and nothing else.
func parsePosition(s string) (position, bool) {
	var p position
	rest, end := strings.CutSuffix(s, "-end")
	records, errors, _ := strings.Cut(rest, "-")
	p.end = end
	var err1, err2 error
	p.records, err1 = strconv.ParseInt(records, 10, 64)
	p.errors, err2 = strconv.ParseInt(errors, 10, 64)
	if err1 != nil || err2 != nil || p.records < 0 || p.errors < 0 || p.String() != s {
		return position{}, false
	}
	return p, true
}

// streams counts the streams that are open, and ends them when the server stops: a client that
// only listens must not hold up the end of a process.
type streams struct {
	closing chan struct{}
	close   func() // closes closing; a second call does nothing

	mu      sync.Mutex
	open    int
	tenants map[string]int
}

func newStreams() *streams {
	s := &streams{closing: make(chan struct{}), tenants: map[string]int{}}
	s.close = sync.OnceFunc(func() { close(s.closing) })
	return s
}

// enter takes a place for a stream of the tenant; leave gives it back.
func (s *streams) enter(tenant string) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.tenants[tenant] >= tenantStreams:
		return nil, &crawl.Fault{
			Code: crawl.CodeRateLimited, RetryAfter: eventsRetry,
			Message: fmt.Sprintf("%d streams of events are open already. Close one, or read the status of the job.", tenantStreams),
		}
	case s.open >= streamsMost:
		return nil, &crawl.Fault{
			Code: crawl.CodeOverloaded, RetryAfter: eventsRetry,
			Message: "The service has as many streams of events open as it can. Try again shortly, or read the status of the job.",
		}
	}
	s.open++
	s.tenants[tenant]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
		if s.tenants[tenant]--; s.tenants[tenant] == 0 {
			delete(s.tenants, tenant)
		}
	}), nil
}

// eventRoute adds the route of the events of a job.
func (s *Server) eventRoute() {
	op := operation("stream-events", http.MethodGet, "/v1/jobs/{id}/events",
		"Follow a job by server-sent events", http.StatusOK,
		crawl.CodeMalformed, crawl.CodeNotFound, crawl.CodeExpired, crawl.CodeRateLimited, crawl.CodeOverloaded)
	op.Responses["200"] = &huma.Response{
		Description: "Events, as the HTML standard has them (section 9.2), until the job has ended.",
		Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: "string"}}},
	}
	op.Responses["204"] = &huma.Response{Description: "The end of the job was told already: there is nothing to follow."}
	register(s, op, s.events)
}

// events streams what becomes of a job. Whatever can be refused is before the answer begins.
func (s *Server) events(ctx context.Context, x *exchange, in *eventsInput) (*eventsOutput, error) {
	ref, err := x.ref(in.ID)
	if err != nil {
		return nil, err
	}
	p := params{faults: x.query}
	e := &eventStream{s: s, x: x, job: ref, only: p.eventKinds(in.Only)}
	if in.Last != "" {
		var ok bool
		if e.at, ok = parsePosition(in.Last); !ok {
			return nil, malformed("Last-Event-ID is not the id of an event of this service. Leave it out to begin at the first.")
		}
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	j, err := s.jobs.Job(ctx, ref)
	if err != nil {
		return nil, err
	}
	if e.at.end && j.State.Terminal() {
		return &eventsOutput{Body: func(c huma.Context) { c.SetStatus(http.StatusNoContent) }}, nil
	}
	out := &eventsOutput{ContentType: "text/event-stream", Buffering: "no"}
	if x.c.Request.Method == http.MethodHead {
		out.Body = func(huma.Context) {}
		return out, nil
	}
	leave, err := s.streams.enter(x.tenant)
	if err != nil {
		return nil, err
	}
	out.Body = func(huma.Context) {
		defer leave()
		// A stream that breaks looks to its client like one that ended: both come back.
		if err := e.run(ctx, &j); err != nil && ctx.Err() == nil {
			_ = x.fail(err) // for the log alone
		}
	}
	return out, nil
}

// eventKinds reads the parameter only.
func (p *params) eventKinds(s string) []string {
	all := []string{eventStatus, eventRecord, eventError}
	if s == "" {
		return all
	}
	kinds := strings.Split(s, ",")
	for _, k := range kinds {
		if !slices.Contains(all, k) {
			p.add("only", "enum", "Give one or more of status, record and error, joined by commas.")
			break
		}
	}
	return kinds
}

// eventStream is one client that follows a job.
type eventStream struct {
	s    *Server
	x    *exchange
	job  crawl.JobRef
	only []string
	at   position
	out  *sink
	told []byte    // the status that was sent last
	sent time.Time // when anything was
}

// run sends events until the job has ended, the client is gone, the server stops or the stream
// has lasted long enough. A store that does not answer ends nothing: the next look may succeed.
func (e *eventStream) run(ctx context.Context, j *crawl.Job) error {
	ctx, cancel := context.WithTimeout(ctx, eventsMost)
	defer cancel()
	e.out = e.s.newSink(e.x)
	over, rc := make(chan struct{}), http.NewResponseController(e.x.c.Writer)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-e.s.streams.closing: // who does not read must not hold up the end
			_ = rc.SetWriteDeadline(time.Now().Add(time.Second))
			cancel()
		case <-over:
		}
	})
	defer func() { close(over); watch.Wait() }()
	_, _ = fmt.Fprintf(e.out.w, "retry: %d\n\n", eventsRetry.Milliseconds())
	if err := e.flush(); err != nil {
		return err
	}
	tick := time.NewTicker(eventsPoll)
	defer tick.Stop()
	for {
		over, err := e.look(ctx, j)
		switch code := crawl.CodeOf(err); {
		case over:
			return err
		case ctx.Err() != nil:
			return nil
		case err == nil || code == crawl.CodeUnavailable:
		case code == crawl.CodeNotFound || code == crawl.CodeExpired:
			return e.gone(err)
		default:
			return err
		}
		if time.Since(e.sent) >= eventsQuiet {
			_, _ = e.out.w.WriteString(":\n\n")
			if err := e.flush(); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		//nolint:contextcheck // it has that of the exchange
		if crawl.CodeOf(e.s.authenticate(e.x)) == crawl.CodeUnauthenticated { // revoked, or suspended
			return nil
		}
		next, err := e.s.jobs.Job(ctx, e.job)
		switch code := crawl.CodeOf(err); {
		case err == nil:
			*j = next
		case code == crawl.CodeNotFound || code == crawl.CodeExpired:
			return e.gone(err)
		case code != crawl.CodeUnavailable:
			return err
		}
	}
}

// look sends what is new of a job that was read before: first what it has recorded, then its
// status, so that whoever hears of the end has had all.
func (e *eventStream) look(ctx context.Context, j *crawl.Job) (over bool, err error) {
	if j.Records > e.at.records { // of nothing new the store would be asked 500 numbers, each second
		if err := e.records(ctx); err != nil {
			return false, err
		}
	}
	if j.Failed > e.at.errors {
		if err := e.failures(ctx); err != nil {
			return false, err
		}
	}
	st := statusOf(j)
	text, err := json.Marshal(&st)
	if err != nil {
		return false, err
	}
	if j.State.Terminal() {
		e.at.end = true
		e.write(eventEnd, text)
		return true, e.flush()
	}
	if slices.Contains(e.only, eventStatus) && !bytes.Equal(text, e.told) {
		e.told = text
		e.write(eventStatus, text)
		return false, e.flush()
	}
	return false, nil
}

func (e *eventStream) records(ctx context.Context) error {
	for more := slices.Contains(e.only, eventRecord); more; {
		found, err := e.s.jobs.Records(ctx, e.job, e.at.records, exportPage)
		if err != nil {
			return err
		}
		for i := range found.Records {
			r := recordOf(&found.Records[i])
			e.at.records = found.Records[i].Seq
			if err := e.encode(eventRecord, &r); err != nil {
				return err
			}
		}
		if e.at.records = found.Next; len(found.Records) > 0 {
			if err := e.flush(); err != nil {
				return err
			}
		}
		more = found.More
	}
	return nil
}

func (e *eventStream) failures(ctx context.Context) error {
	for more := slices.Contains(e.only, eventError); more; {
		found, err := e.s.jobs.Failures(ctx, e.job, e.at.errors, exportPage)
		if err != nil {
			return err
		}
		for i := range found.Failures {
			f := failureOf(&found.Failures[i])
			e.at.errors = found.Next - int64(len(found.Failures)-1-i)
			if err := e.encode(eventError, &f); err != nil {
				return err
			}
		}
		if e.at.errors = found.Next; len(found.Failures) > 0 {
			if err := e.flush(); err != nil {
				return err
			}
		}
		more = found.More
	}
	return nil
}

// gone tells that the job was removed.
func (e *eventStream) gone(err error) error {
	text, failed := json.Marshal(problemOf(err, e.x.id))
	if failed != nil {
		return failed
	}
	e.write(eventGone, text)
	return e.flush()
}

func (e *eventStream) encode(event string, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	e.write(event, bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	return nil
}

// write adds one event. JSON has no line break, so that its data is one line.
func (e *eventStream) write(event string, data []byte) {
	_, _ = fmt.Fprintf(e.out.w, "id: %s\nevent: %s\ndata: %s\n\n", e.at, event, data)
}

func (e *eventStream) flush() error {
	select {
	case <-e.s.streams.closing: // no longer deadline any more
		return context.Canceled
	default:
	}
	e.sent = time.Now()
	return e.out.flush()
}
