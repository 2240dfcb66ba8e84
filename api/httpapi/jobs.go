package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/fields"
	"example.com/trawl/pkg/obs"
	"example.com/trawl/pkg/queue"
	"example.com/trawl/pkg/store"
)

// pathJobs is where jobs are submitted and listed.
const pathJobs = "/v1/jobs"

const (
	// MaxBody bounds the body of a submission, in bytes: 10,000 URLs of 200 bytes.
	MaxBody = 2 << 20

	maxIdempotencyKey = 255

	// bodyRoom bounds the bodies that are read and worked on at the same time, in
	// bytes: a job of 10,000 URLs takes some ten times its body until it is stored.
	bodyRoom = 16 << 20
	// tenantRoom is what one tenant may have of it: whoever sends slowly keeps it for long.
	tenantRoom = bodyRoom / 2
	// smallBody is what needs no room: it takes no more than its connection does, so
	// that the usual submission never waits behind large ones that come slowly.
	smallBody = 16 << 10
	// bodyWait is how long a submission waits for room, which is enough for those
	// before it if they are on their way through.
	bodyWait = time.Second

	// cancelWait is how long a cancel waits for the end. The store promises it
	// within 5 s, workers that were killed included.
	cancelWait = 10 * time.Second
	// cancelPoll is how often a cancel looks. A status read takes the store well
	// under a millisecond, and the usual end comes within one request of a page.
	cancelPoll = 100 * time.Millisecond

	// afterAnswer bounds what is still done for a stored job when its client may
	// be gone: an accepted job runs, whoever listens.
	afterAnswer = 5 * time.Second
)

type submitInput struct {
	// Key is read from the request itself: huma shows the first of two.
	Key string `header:"Idempotency-Key" doc:"Names the submission: the same key with the same input answers the same job, with other input 409. 1 to 255 visible ASCII characters after trimming, case-sensitive, given once. Without it each call is a new job." maxLength:"255" pattern:"^[!-~]+$"`
}

type submitOutput struct {
	Location string `header:"Location" doc:"Where the job is read."`
	Replayed string `header:"Idempotent-Replayed" doc:"true when the job was created by an earlier submission of the same key."`
	Body     status
}

func (s *Server) submit(ctx context.Context, x *exchange, _ *submitInput) (*submitOutput, error) {
	created, err := s.create(ctx, x)
	return s.submitted(ctx, x, &created, err)
}

// submitted rings for a job that was created, or was before, and answers it; err is why it was not.
// Either is counted.
func (s *Server) submitted(ctx context.Context, x *exchange, created *store.Created, err error) (*submitOutput, error) {
	if err != nil {
		s.metrics.submitted(outcomeRefused, crawl.CodeOf(err))
		return nil, err
	}
	out := &submitOutput{Location: "/v1/jobs/" + created.Job.ID}
	outcome := outcomeCreated
	if created.Replayed {
		outcome, out.Replayed = outcomeReplayed, "true"
	}
	s.metrics.submitted(outcome, "")
	if message := s.ring(ctx, x, created.Rings, created.Job.ID); message != "" && !created.Job.State.Terminal() {
		created.Job.WaitingFor, created.Job.Error = "dispatch", message
	}
	out.Body = statusOf(&created.Job)
	return out, nil
}

// create turns a request into a stored job.
func (s *Server) create(ctx context.Context, x *exchange) (store.Created, error) {
	key, err := idempotencyKey(x.c.Request.Header)
	if err != nil {
		return store.Created{}, err
	}
	var created store.Created
	err = s.withBody(ctx, x, func(body []byte) error {
		var in submission
		wrong := decodeStrict(body, &in)
		if wrong != nil && in.empty() {
			return wrong
		}
		created, err = s.createJob(ctx, x, &in, key, wrong)
		return err
	})
	return created, err
}

// plan decides everything about a job that in leaves open. Its faults are told together with
// those of form, which decodeStrict found and which may be nil.
func (a *account) plan(in *submission, sources crawl.Sources, form error) (crawl.Plan, []crawl.Input, error) {
	plan, inputs, err := (*crawl.Spec)(in).Plan(a.limits, sources)
	err = together(form, err)
	if len(in.Fields) == 0 && in.Items == nil {
		return plan, inputs, err
	}
	if _, faults := fields.Compile(fields.Spec{Fields: in.Fields, Items: in.Items}); len(faults) > 0 {
		err = together(err, &crawl.Fault{
			Code:    crawl.CodeInvalid,
			Message: "The job cannot be accepted. Mend each of the fields named in errors.",
			Fields:  bounded(faults),
		})
	}
	return plan, inputs, err
}

// bounded returns at most maxFaults of faults, and one that says that there are more.
func bounded(faults []crawl.FieldFault) []crawl.FieldFault {
	more := len(faults) - maxFaults
	if more <= 0 {
		return faults
	}
	return append(faults[:maxFaults:maxFaults], crawl.FieldFault{
		Field: "fields", Rule: crawl.RuleMoreFaults,
		Message: fmt.Sprintf("%d more fields have faults. Mend these first.", more),
	})
}

// createJob stores the job of a submission under an idempotency key, "" for none. form is what
// decodeStrict found wrong with it, nil for nothing.
func (s *Server) createJob(
	ctx context.Context, x *exchange, in *submission, key string, form error,
) (store.Created, error) {
	acct := x.account()
	plan, inputs, err := acct.plan(in, acct.sources, form)
	if err != nil {
		return store.Created{}, err
	}
	kept := shown(*in)
	stored, err := json.Marshal(&kept)
	if err != nil {
		return store.Created{}, err
	}
	x.job = crawl.NewJobID(x.tenant, key)
	// The digest is that of what was sent, whatever the collection adds to it.
	n := store.NewJob{
		Job: crawl.JobRef{Tenant: x.tenant, ID: x.job}, IdempotencyKey: key, Digest: (*crawl.Spec)(in).Digest(),
		Spec: stored, Plan: plan, Inputs: inputs, Tags: in.Tags, Quota: s.o.Quota,
	}
	return s.createAdopting(ctx, in, n, func(adopted *submission) (crawl.Plan, error) {
		plan, _, err := acct.plan(adopted, acct.sources, nil)
		return plan, err
	})
}

// adoptions is how often a submission takes over the definition of its collection: a
// collection can be deleted and made anew between two tries, but not for ever.
const adoptions = 3

// createAdopting stores a job. What the submission leaves open of the definition of its
// collection is taken from the one that the collection has, and plan decides anew with that; what
// it says otherwise is a fault.
func (s *Server) createAdopting(
	ctx context.Context, in *submission, n store.NewJob, plan func(*submission) (crawl.Plan, error),
) (store.Created, error) {
	for range adoptions {
		n.Plan.Trace = obs.TraceParent(ctx) // of no digest: a replay keeps that of the first
		created, err := s.jobs.Create(ctx, n)
		var other *store.OtherDefinitionError
		if !errors.As(err, &other) || in.Collection == nil {
			return created, err
		}
		adopted, of := *in, *in.Collection
		adopted.Collection = &of
		if differs := of.Adopt(other.Existing); len(differs) > 0 {
			return store.Created{}, otherDefinition(&other.Existing, differs)
		}
		if n.Plan, err = plan(&adopted); err != nil {
			return store.Created{}, notAdopted(&other.Existing, err)
		}
	}
	return store.Created{}, &crawl.Fault{
		Code:    crawl.CodeUnavailable,
		Message: "The definition of the collection changes all the time. Nothing was stored; try again shortly.",
	}
}

// otherDefinition refuses parts of a definition that a collection has otherwise.
func otherDefinition(existing *crawl.Collection, parts []string) *crawl.Fault {
	f := &crawl.Fault{
		Code:    crawl.CodeInvalid,
		Message: "The job cannot be accepted. Mend each of the fields named in errors.",
	}
	has := map[string]string{
		"key": "the key " + existing.Key, "facets": listed("facets", existing.Facets), "numbers": listed("numbers", existing.Numbers),
	}
	for _, part := range parts {
		f.Fields = append(f.Fields, crawl.FieldFault{
			Field: "collection." + part, Rule: "collection",
			Message: fmt.Sprintf("The collection %s has %s. Leave %s out, or delete the collection.", existing.Name, has[part], part),
		})
	}
	return f
}

func listed(what string, names []string) string {
	if len(names) == 0 {
		return "no " + what
	}
	return "the " + what + " " + strings.Join(names, ", ")
}

// notAdopted says of the faults of a plan that they are due to what it took over: the
// definition of a collection is not what the caller wrote.
func notAdopted(existing *crawl.Collection, err error) error {
	var f *crawl.Fault
	if !errors.As(err, &f) {
		return err
	}
	told := *f
	told.Fields = slices.Clone(f.Fields)
	for i := range told.Fields {
		of := &told.Fields[i]
		if strings.HasPrefix(of.Field, "collection.") {
			of.Rule = "collection"
			of.Message = fmt.Sprintf("The collection %s has the key %s, %s and %s, which are not all fields of this job "+
				"that can be that. %s", existing.Name, existing.Key, listed("facets", existing.Facets),
				listed("numbers", existing.Numbers), of.Message)
		}
	}
	return &told
}

// withBody reads the body of a request and hands it to use, which keeps nothing of it. The
// room that the body takes is given back when use returns.
func (s *Server) withBody(ctx context.Context, x *exchange, use func([]byte) error) error {
	if err := acceptable(x.c.Request); err != nil {
		return err
	}
	leave, err := s.enter(ctx, x)
	if err != nil {
		return err
	}
	defer leave()
	body := bodies.Get().(*bytes.Buffer) //nolint:forcetypeassert // nothing else is put in
	defer func() {
		if body.Cap() <= 64<<10 { // one large submission must not keep its memory for all small ones
			body.Reset()
			bodies.Put(body)
		}
	}()
	if err := readBody(x.c.Writer, x.c.Request, body); err != nil {
		return err
	}
	return use(body.Bytes())
}

// together joins the faults of the form of a submission and of what it says, so that
// nobody has to send it twice to learn both.
func together(form, meaning error) error {
	if form == nil {
		return meaning
	}
	var a, b *crawl.Fault
	if !errors.As(form, &a) || !errors.As(meaning, &b) {
		return errors.Join(form, meaning)
	}
	both := *a
	if a.Code == crawl.CodeSourceNotAllowed { // which says that nothing else is wrong
		both.Code, both.Message = b.Code, b.Message
	}
	both.Fields = append(slices.Clone(a.Fields), b.Fields...)
	return &both
}

// shownURLs is how many URLs of a list a status shows: it is read often, and 10,000
// URLs are a megabyte each time.
const shownURLs = 100

// shownSpec is a spec as a status shows it: as it was decoded, not as it was sent, so
// that what is shown is what was done.
type shownSpec struct {
	submission
	URLsOmitted int `json:"urls_omitted,omitempty" doc:"How many more URLs the submission had than are shown."`
}

func shown(in submission) shownSpec {
	out := shownSpec{submission: in}
	out.Headers = in.Headers.Masked() // credentials: a status is read by more than who submitted
	out.Webhook = in.Webhook.Masked()
	if n := len(in.URLs) - shownURLs; n > 0 {
		out.URLs, out.URLsOmitted = in.URLs[:shownURLs], n
	}
	return out
}

// empty reports whether nothing of a submission could be read.
func (in submission) empty() bool { return reflect.ValueOf(in).IsZero() }

var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// idempotencyKey returns the key of a request, "" for none. A key that is cut,
// or of which one of two is taken, would name somebody else's submission.
func idempotencyKey(h http.Header) (string, error) {
	given := h.Values("Idempotency-Key")
	if len(given) == 0 {
		return "", nil
	}
	if len(given) > 1 {
		return "", malformed("Idempotency-Key is given more than once. Give it once.")
	}
	key := strings.Trim(given[0], " \t")
	invisible := func(r rune) bool { return r < '!' || r > '~' }
	if key == "" || len(key) > maxIdempotencyKey || strings.ContainsFunc(key, invisible) {
		return "", malformed("Idempotency-Key must have 1 to %d visible ASCII characters.", maxIdempotencyKey)
	}
	return key, nil
}

// enter waits for room for the body of a request. leave gives the room back; what was made
// of the body must be let go by then.
func (s *Server) enter(ctx context.Context, x *exchange) (leave func(), err error) {
	announced := x.c.Request.ContentLength // -1 for an unknown one
	if 0 <= announced && announced <= smallBody {
		return func() {}, nil
	}
	if announced < 0 {
		announced = MaxBody
	}
	return s.room(ctx, x.tenant, announced)
}

// room waits for room for n bytes of a submission, and for what is made of them. leave gives it back.
func (s *Server) room(ctx context.Context, tenant string, n int64) (leave func(), err error) {
	wait, stop := context.WithTimeout(ctx, bodyWait)
	defer stop()
	own, err := s.shares.acquire(wait, tenant, n)
	if err == nil {
		if err = s.bodies.Acquire(wait, n); err != nil {
			own()
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &crawl.Fault{
			Code: crawl.CodeOverloaded, Err: err,
			Message: "The service works on as many large submissions as it can. Nothing was stored; try again shortly.",
		}
	}
	return func() { s.bodies.Release(n); own() }, nil
}

// acceptable says what is wrong with a body by its header alone.
func acceptable(r *http.Request) error {
	const wanted = "Send a JSON object as Content-Type: application/json, not compressed."
	media, param, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if charset := param["charset"]; err != nil || media != "application/json" ||
		charset != "" && !strings.EqualFold(charset, "utf-8") {
		return crawl.Faultf(codeUnsupportedMediaType,
			"The Content-Type of the body is missing or not supported. %s", wanted)
	}
	// Not decoded on purpose: a limit on decoded bytes is one more thing to get
	// wrong, for bodies that are a few hundred bytes.
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return crawl.Faultf(codeUnsupportedMediaType, "The Content-Encoding of the body is not supported. %s", wanted)
	}
	if r.ContentLength > MaxBody {
		return tooLarge()
	}
	return nil
}

func tooLarge() error {
	return crawl.Faultf(crawl.CodeBodyTooLarge, "The body is larger than %d bytes. Submit several jobs.", MaxBody)
}

// readBody reads the body of a request into buf, if it is not larger than [MaxBody].
func readBody(w http.ResponseWriter, r *http.Request, buf *bytes.Buffer) error {
	if r.ContentLength > 0 {
		buf.Grow(int(r.ContentLength) + bytes.MinRead) // or it would be copied at each doubling
	}
	var limit *http.MaxBytesError
	_, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, MaxBody))
	switch {
	case err == nil:
		return nil
	case errors.As(err, &limit):
		return tooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return malformed("The body did not arrive in time. Send it faster, or submit several jobs.")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return malformed("The body is shorter than announced. Send it again.")
	}
	return &crawl.Fault{Code: crawl.CodeMalformed, Message: "The body could not be read. Send it again.", Err: err}
}

// ring rings for what the store decided, and returns why job is not rung, "" when
// all is well. A ring that fails is no fault of the call: the job is stored, the
// store is told, and a sweep rings again. Neither may depend on the client still
// being there.
func (s *Server) ring(ctx context.Context, x *exchange, rings []crawl.Ring, job string) string {
	if len(rings) == 0 {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterAnswer)
	defer cancel()
	err := s.o.Doorbell.Ring(tracedRing(ctx, x, job), rings...)
	if err == nil {
		return ""
	}
	s.metrics.ringsFailed.Add(float64(len(rings)))
	s.log.WarnContext(ctx, "ring failed",
		slog.String("request_id", x.id), slog.Int("rings", len(rings)), slog.String("job_id", rings[0].ID),
		slog.String("tenant", rings[0].Tenant), slog.Any("err", err))
	message := "The queue did not take the job. It is kept and will be dispatched as soon as the queue answers."
	if errors.Is(err, queue.ErrPaused) {
		message = messageOf(err)
	}
	about := ""
	for _, r := range rings {
		if r.ID == job {
			about = message
		}
		if err := s.o.Jobs.RingFailed(ctx, r.JobRef, message); err != nil {
			s.log.WarnContext(ctx, "ring failed, and the store could not be told", slog.String("request_id", x.id),
				slog.String("job_id", r.ID), slog.String("tenant", r.Tenant), slog.Any("err", err))
		}
	}
	return about
}

type jobInput struct {
	ID string `path:"id" doc:"Identity of the job."`
}

type jobOutput struct {
	Body status
}

// ref names the job of a path. What has not the form of an id is no job's, and
// never becomes part of a key.
func (x *exchange) ref(id string) (crawl.JobRef, error) {
	if !crawl.ValidJobID(id) {
		return crawl.JobRef{}, crawl.Faultf(crawl.CodeNotFound, "no such job")
	}
	x.job = id
	return crawl.JobRef{Tenant: x.tenant, ID: id}, nil
}

func (s *Server) job(ctx context.Context, x *exchange, in *jobInput) (*jobOutput, error) {
	ref, err := x.ref(in.ID)
	if err != nil {
		return nil, err
	}
	j, err := s.jobs.Job(ctx, ref)
	if err != nil {
		return nil, err
	}
	return &jobOutput{Body: statusOf(&j)}, nil
}

type listInput struct {
	State        string    `query:"state" enum:"queued,running,paused,cancelling,completed,completed_with_errors,failed,cancelled" doc:"Only jobs in this state. With a filter a page may be empty and yet has_more: go on with next_cursor."`
	Tag          string    `query:"tag" doc:"Only jobs with this tag."`
	CreatedAfter string    `query:"created_after" format:"date-time" doc:"Only jobs that were created later."`
	Limit        listLimit `query:"limit"`
	Cursor       string    `query:"cursor" doc:"The next_cursor of the page before."`
}

type listOutput struct {
	Body page[status]
}

func (s *Server) list(ctx context.Context, x *exchange, in *listInput) (*listOutput, error) {
	p := params{faults: x.query}
	q := store.ListQuery{
		Tenant: x.tenant, State: p.state(in.State), Tag: in.Tag, CreatedAfter: p.time("created_after", in.CreatedAfter),
		Before: p.cursor(cursorJobs, in.Cursor), Limit: p.limit(string(in.Limit), listLimitDefault, listLimitMax),
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	found, err := s.jobs.List(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &listOutput{Body: page[status]{Items: make([]status, len(found.Jobs)), HasMore: found.More}}
	for i := range found.Jobs {
		out.Body.Items[i] = statusOf(&found.Jobs[i])
	}
	if found.More {
		next := encodeCursor(cursorJobs, found.Next)
		out.Body.NextCursor = &next
	}
	return out, nil
}

// cancel asks for the end of a job and waits for it. When the grace of what is in
// flight is over it asks again: the store then revokes what no worker gave back,
// so the end does not depend on any worker. A client that hangs up changes
// nothing, since a sweep ends the job too.
func (s *Server) cancel(ctx context.Context, x *exchange, in *jobInput) (*jobOutput, error) {
	ref, err := x.ref(in.ID)
	if err != nil {
		return nil, err
	}
	client := ctx
	ctx, stop := context.WithTimeout(client, cancelWait)
	defer stop()
	grace, err := s.askToCancel(ctx, x, ref)
	if err != nil {
		return nil, unanswered(client, err)
	}
	revoke := time.NewTimer(grace)
	defer revoke.Stop()
	poll := time.NewTicker(cancelPoll)
	defer poll.Stop()
	for {
		j, err := s.o.Jobs.Job(ctx, ref)
		if err != nil && ctx.Err() == nil {
			return nil, err
		}
		if err == nil && j.State.Terminal() {
			return &jobOutput{Body: statusOf(&j)}, nil
		}
		select {
		case <-poll.C:
		case <-revoke.C:
			if grace, err = s.askToCancel(ctx, x, ref); err != nil && ctx.Err() == nil {
				return nil, err
			}
			revoke.Reset(grace)
		case <-ctx.Done():
			// The wait is over, not the cancel: the answer is where the job is now.
			return s.job(context.WithoutCancel(ctx), x, in)
		}
	}
}

// askToCancel returns how long what is in flight has until it is revoked.
func (s *Server) askToCancel(ctx context.Context, x *exchange, ref crawl.JobRef) (time.Duration, error) {
	res, err := s.o.Jobs.Cancel(ctx, ref)
	if err != nil {
		return 0, err
	}
	s.ring(ctx, x, res.Rings, ref.ID)
	// Never zero: a store that says "now" for ever must not be asked in a loop.
	return max(res.GraceLeft, cancelPoll), nil
}

type deleteOutput struct{}

func (s *Server) remove(ctx context.Context, x *exchange, in *jobInput) (*deleteOutput, error) {
	ref, err := x.ref(in.ID)
	if err != nil {
		return nil, err
	}
	if err := s.jobs.Delete(ctx, ref); err != nil {
		return nil, err
	}
	return &deleteOutput{}, nil
}

type pageInput struct {
	ID     string    `path:"id" doc:"Identity of the job."`
	Limit  pageLimit `query:"limit"`
	Cursor string    `query:"cursor" doc:"The next_cursor of the page before. A cursor answers the same page each time, but for what was added behind it."`
}

type recordsOutput struct {
	Body page[record]
}

type failuresOutput struct {
	Body page[failure]
}

// pageOf reads what the two lists of a job have in common.
func (x *exchange) pageOf(kind byte, in *pageInput) (ref crawl.JobRef, after int64, limit int, err error) {
	if ref, err = x.ref(in.ID); err != nil {
		return ref, 0, 0, err
	}
	p := params{faults: x.query}
	after, limit = p.cursor(kind, in.Cursor), p.limit(string(in.Limit), pageLimitDefault, pageLimitMax)
	return ref, after, limit, p.err()
}

// nextCursor returns nil only when nothing can come behind the last entry.
func nextCursor(kind byte, next int64, more, ended bool) *string {
	if ended && !more {
		return nil
	}
	cursor := encodeCursor(kind, next)
	return &cursor
}

func (s *Server) records(ctx context.Context, x *exchange, in *pageInput) (*recordsOutput, error) {
	ref, after, limit, err := x.pageOf(cursorRecords, in)
	if err != nil {
		return nil, err
	}
	found, err := s.jobs.Records(ctx, ref, after, limit)
	if err != nil {
		return nil, err
	}
	items := make([]record, len(found.Records))
	for i := range found.Records {
		items[i] = recordOf(&found.Records[i])
	}
	return &recordsOutput{Body: page[record]{
		Items: items, HasMore: found.More, NextCursor: nextCursor(cursorRecords, found.Next, found.More, found.Ended),
	}}, nil
}

func (s *Server) failures(ctx context.Context, x *exchange, in *pageInput) (*failuresOutput, error) {
	ref, after, limit, err := x.pageOf(cursorErrors, in)
	if err != nil {
		return nil, err
	}
	found, err := s.jobs.Failures(ctx, ref, after, limit)
	if err != nil {
		return nil, err
	}
	items := make([]failure, len(found.Failures))
	for i := range found.Failures {
		items[i] = failureOf(&found.Failures[i])
	}
	return &failuresOutput{Body: page[failure]{
		Items: items, HasMore: found.More, NextCursor: nextCursor(cursorErrors, found.Next, found.More, found.Ended),
	}}, nil
}
