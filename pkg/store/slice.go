package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
)

// Slice is a worker's turn at a job. Gen is its token: it fences every lease and
// every commit, and no two slices of a job ever have the same.
type Slice struct {
	Job  crawl.JobRef
	Gen  int64
	Plan crawl.Plan
	// Ahead is how far the store's clock is before this process's; zero where they agree as
	// far as can be told. Whatever is recorded has the store's time (JOB-23).
	Ahead time.Duration
}

// The times that a slice lives by. They stand in scripts/include/job.lua too; a
// test compares.
const (
	// LeaseTime is how long a slice lives without [Store.Renew]. A killed worker's
	// URLs wait that long and one sweep more.
	LeaseTime = 12 * time.Second
	// RenewEvery leaves three more tries before the lease is over.
	RenewEvery = 3 * time.Second
	// Grace is what a cancelled job's requests in flight have to be given back.
	Grace = 4 * time.Second
	// PeekTime is how long a job rests when pages in flight have all that is left of its
	// tenant's day: one that is given back is another's.
	PeekTime = time.Second
	// MaxLost is the number of lost workers after which a page itself is to blame.
	MaxLost = 5
)

// slotTime is how long a host slot lives without renewal: that of the slice.
const slotTime = LeaseTime

func (s *Store) keys(j crawl.JobRef) []string { return []string{rootKey(j.Tenant), jobKey(j)} }

// ErrNewer is the error of [Store.Begin] for a job of a format that this process does not know: a
// newer version of Trawl stored it. Nothing was changed, and its ring is for a worker of that version.
var ErrNewer = errors.New("store: the job is of a newer format than this worker reads: update the worker")

// Begin registers a slice for a ring. The slice is nil when the ring was late or
// doubled, or nothing is due: it dies out, and the task is done. The error is [ErrNewer] for a job
// that this process must leave to another, or a fault.
func (s *Store) Begin(ctx context.Context, ring crawl.Ring) (*Slice, []crawl.Ring, error) {
	// The nonce makes a begin that the client sent twice one slice.
	c := &call{script: beginScript, keys: s.keys(ring.JobRef), args: []any{s.now(), ring.ID, rand.Text()}}
	var clock *redis.TimeCmd
	asked := time.Now()
	if err := s.run(ctx, func(p redis.Pipeliner) { clock = p.Time(ctx) }, c); err != nil {
		return nil, nil, err
	}
	a := array(c.cmd)
	switch num(a[0]) {
	case 0:
		return nil, nil, nil
	case -1:
		return nil, nil, ErrNewer
	}
	sl := &Slice{Job: ring.JobRef, Gen: num(a[0])}
	if theirs, err := clock.Result(); err == nil && s.o.Now == nil {
		sl.Ahead = ahead(theirs, asked, time.Now())
	}
	if err := json.Unmarshal([]byte(str(a[1])), &sl.Plan); err != nil {
		return nil, nil, fmt.Errorf("store: plan of job %s: %w", ring.ID, err)
	}
	return sl, rings(ring.Tenant, a[2:]), nil
}

// ahead compares the store's clock, asked for and answered at times of ours, with ours. What
// the way there and back can hide is no difference.
func ahead(theirs, asked, answered time.Time) time.Duration {
	half := answered.Sub(asked) / 2
	d := theirs.Sub(asked.Add(half))
	if d.Abs() <= half+time.Millisecond {
		return 0
	}
	return d
}

// Renewed is what a renewal brings.
type Renewed struct {
	// State of the job. Unless it is running, the slice gives everything back.
	State crawl.State
	// Lost reports that the job goes on without this slice: all that it held is
	// another's, and nothing that it commits will count.
	Lost  bool
	Rings []crawl.Ring
}

// Renew prolongs the slice's one deadline, and the host slots given. It is called
// every [RenewEvery].
func (s *Store) Renew(ctx context.Context, sl *Slice, slots ...HostSlots) (Renewed, error) {
	calls := []*call{{script: renewScript, keys: s.keys(sl.Job), args: []any{s.now(), sl.Job.ID, sl.Gen}}}
	for _, h := range slots {
		args := []any{s.now(), slotTime.Milliseconds()}
		for _, k := range h.Slots {
			args = append(args, slotName(sl, k))
		}
		calls = append(calls, &call{script: hostRenewScript, keys: []string{hostKey(h.Host, "slots")}, args: args})
	}
	// A host whose shard does not answer must not cost the slice its lease.
	s.send(ctx, nil, calls...)
	if err := calls[0].err(); err != nil {
		return Renewed{}, err
	}
	a := array(calls[0].cmd)
	st := str(a[0])
	return Renewed{State: crawl.State(st), Lost: st == "lost", Rings: rings(sl.Job.Tenant, a[1:])}, nil
}

// End closes a slice. What it still holds goes back to the frontier, and the job is
// rung as often as it needs, after a rest if one is given: that is for a slice that
// found nothing it could start, since the next one would find the same; [NoRest] of one
// that worked ends a rest that another asked for. Ending twice is harmless.
func (s *Store) End(ctx context.Context, sl *Slice, rest time.Duration) ([]crawl.Ring, error) {
	return s.EndWaiting(ctx, sl, rest, "")
}

// EndWaiting is End for a job that rests for another reason than its URLs have, as
// [crawl.WaitingMemory]: its status says so until a slice begins again.
func (s *Store) EndWaiting(ctx context.Context, sl *Slice, rest time.Duration, what string) ([]crawl.Ring, error) {
	a, err := s.one(ctx, endScript, s.keys(sl.Job), s.now(), sl.Job.ID, sl.Gen, rest.Milliseconds(), what)
	if err != nil {
		return nil, err
	}
	return rings(sl.Job.Tenant, a[1:]), nil
}

// NoRest is the rest of a job whose slice found work.
const NoRest time.Duration = -time.Millisecond

// Commit is the outcome of one leased URL. Exactly one of the outcomes is set.
type Commit struct {
	Item crawl.Item

	Accepted *Accepted
	// NoIndex takes the links of a page in, with Accepted, and skips the page.
	NoIndex   bool
	Failed    *crawl.Failure
	Skipped   crawl.Reason
	SkippedTo string // where a redirect led that the job does not follow
	// Why says for a person why an input was not accepted, with Failed or Skipped: it
	// becomes the error of a job that has no other.
	Why string
	// Retry sends the item back with one attempt more, due after the delay.
	Retry time.Duration
	// Redirect sends the item back, to be fetched at another origin.
	Redirect *Redirect
}

// Accepted is a page that was fetched and is wanted.
type Accepted struct {
	Page  crawl.Page
	Final crawl.Key // of the URL where it ended; the first page to claim it wins
	// Links of the page with the verdict of the job's rules. At most
	// [MaxLinks]; what is beyond must be counted in BadLinks.
	Links []crawl.Link
	// BadLinks counts links that are no URLs, by reason.
	BadLinks map[crawl.Reason]int
	// Digest of the body tells pages of the same bytes; empty for a page without any.
	Digest string
	// Content is what is kept of the page, from [Pack]; zero for none. A page that has a
	// DuplicateOf is recorded without.
	Content Packed
	// Items are the fields of the items of the page, a JSON object each, in the order of the
	// page: at most [MaxItems]. Each becomes a record behind that of the page.
	Items []json.RawMessage
	// ListPage counts the page as one in the report of the job.
	ListPage bool
	// Upserts are what enters the collection of the job, at most one a record.
	Upserts []Upsert
	// NotModified reports that the site answered 304 to the validators that [Store.Visited]
	// gave: the items that the page gave then are unchanged. Upserts is empty.
	NotModified bool
	// Visit is kept with the collection, so that a later job can ask whether the page has
	// changed; nil keeps nothing, and forgets what was kept.
	Visit *Visit
}

// Redirect is where a cross-origin redirect leads.
type Redirect struct {
	URL  string
	Hops int // redirects followed, this one included
}

// MaxLinks bounds the links of one commit, so that a script's argument lists stay
// below what Lua can unpack (about 7,000).
const MaxLinks = 2000

// Verdict is what became of a commit.
type Verdict string

// The verdicts.
const (
	Done  Verdict = "done"  // recorded, now or by an earlier try of the same slice
	Alias Verdict = "alias" // recorded as skipped: another page ended at this URL first
	Stale Verdict = "stale" // the slice does not hold the item: nothing changed
)

// Committed is the answer to one commit.
type Committed struct {
	Verdict Verdict
	Seq     int64 // of the record, 0 when there is none
}

// Return gives an item back without an attempt burnt, to be leased again at once
// or after Delay.
type Return struct {
	Item  crawl.Item
	Delay time.Duration
	For   string // what it then waits for, as status tells it; empty means its host
}

// Exchange is one round trip of a slice: what it finished, what it gives back,
// what it wants. On one server its parts are carried out in the order of the fields.
type Exchange struct {
	Free    []HostSlots // host slots no longer used
	Leave   []HostLeave // hosts in whose line the slice stands no more
	Commits []Commit
	Maps    []MapCommit
	Returns []Return
	Retire  bool // the slice leases nothing more: its place is free for another
	Lease   int  // items wanted; 0 for none
	// Holding is the number of items that the slice knows it holds once Commits, Maps and
	// Returns are carried out. If it holds more, an answer was lost: Items are then all.
	Holding  int
	Slow     []HostDelay // hosts that asked for a pause
	Reserves []HostReserve
}

// Exchanged is the answer to an [Exchange].
type Exchanged struct {
	Committed []Committed    // one for each commit
	Mapped    []MapCommitted // one for each of Maps
	State     crawl.State    // of the job; empty unless items were wanted
	Lost      bool           // as in Renewed
	Items     []crawl.Item   // leased now; perhaps others that the slice holds, see Exchange.Holding
	Queued    int64          // URLs still queued and sitemaps still due
	NextDue   time.Duration  // until the next item that waits is due; negative when none does
	Grants    []HostGrant    // one for each reserve
	Rings     []crawl.Ring   // to be rung by the caller
}

// Exchange makes one round trip. A host whose shard does not answer fails only its
// own grants, see HostGrant. After an error nobody knows which parts took
// place: the caller may send the same again, since a commit that was recorded
// answers done and an item not held is passed over.
func (s *Store) Exchange(ctx context.Context, sl *Slice, x Exchange) (Exchanged, error) {
	calls := make([]*call, 0, len(x.Commits)+len(x.Maps)+len(x.Reserves)+len(x.Free)+2)
	keys := s.keys(sl.Job)
	for i := range x.Commits {
		args, err := s.commitArgs(sl, &x.Commits[i])
		if err != nil {
			return Exchanged{}, err
		}
		calls = append(calls, &call{script: commitScript, keys: keys, args: args})
	}
	for i := range x.Maps {
		args, err := s.mapArgs(sl, &x.Maps[i])
		if err != nil {
			return Exchanged{}, err
		}
		calls = append(calls, &call{script: commitMapScript, keys: keys, args: args})
	}
	var release, retire, lease *call
	if len(x.Returns) > 0 {
		args := []any{s.now(), sl.Job.ID, sl.Gen}
		for _, r := range x.Returns {
			args = append(args, row(r.Item), r.Delay.Milliseconds(), cmp.Or(r.For, "host_delay"))
		}
		release = &call{script: releaseScript, keys: keys, args: args}
		calls = append(calls, release)
	}
	if x.Retire {
		retire = &call{script: retireScript, keys: keys, args: []any{s.now(), sl.Job.ID, sl.Gen}}
		calls = append(calls, retire)
	}
	if x.Lease > 0 {
		lease = &call{script: leaseScript, keys: keys, args: []any{s.now(), sl.Job.ID, sl.Gen, x.Lease, x.Holding}}
		calls = append(calls, lease)
	}
	own := len(calls) // what comes after is about hosts
	for _, h := range x.Slow {
		calls = append(calls, &call{
			script: hostDelayScript, keys: []string{hostKey(h.Host, "next")}, args: []any{s.now(), h.Wait.Milliseconds()},
		})
	}
	reserves := len(calls)
	for i := range x.Reserves {
		calls = append(calls, s.reserveCall(sl, &x.Reserves[i]))
	}
	s.send(ctx, freeSlots(ctx, sl, &x), calls...)
	for _, c := range calls[:own] {
		if err := c.err(); err != nil {
			return Exchanged{}, err
		}
	}
	var out Exchanged
	for i := range x.Commits {
		a := array(calls[i].cmd)
		out.Committed = append(out.Committed, Committed{Verdict: Verdict(str(a[0])), Seq: num(a[1])})
		out.Rings = append(out.Rings, rings(sl.Job.Tenant, a[2:])...)
	}
	for i := range x.Maps {
		a := array(calls[len(x.Commits)+i].cmd)
		out.Mapped = append(out.Mapped, MapCommitted{Verdict: Verdict(str(a[0])), Full: num(a[1]) == 1})
		out.Rings = append(out.Rings, rings(sl.Job.Tenant, a[2:])...)
	}
	if release != nil {
		out.Rings = append(out.Rings, rings(sl.Job.Tenant, array(release.cmd)[1:])...)
	}
	if retire != nil {
		out.Rings = append(out.Rings, rings(sl.Job.Tenant, array(retire.cmd)[1:])...)
	}
	if lease != nil {
		if err := out.leased(sl, &x, array(lease.cmd)); err != nil {
			return Exchanged{}, err
		}
	}
	for i := range x.Reserves {
		out.Grants = append(out.Grants, grant(&x.Reserves[i], calls[reserves+i]))
	}
	return out, nil
}

func (out *Exchanged) leased(sl *Slice, x *Exchange, a []any) error {
	st := str(a[0])
	out.State, out.Lost = crawl.State(st), st == "lost"
	out.NextDue = time.Duration(num(a[1])) * time.Millisecond
	out.Queued = num(a[2])
	rows, _ := a[3].([]any)
	for _, r := range rows {
		it, err := parseRow(str(r))
		if err != nil {
			return err
		}
		// After a restart of Redis the commits of this very exchange can have been sent
		// again behind the lease: what they were about is not held any more.
		if !x.mentions(it) {
			out.Items = append(out.Items, it)
		}
	}
	out.Rings = append(out.Rings, rings(sl.Job.Tenant, a[4:])...)
	return nil
}

// mentions compares whole items: what a redirect sent back is another, and may be leased
// again in the same round trip.
func (x *Exchange) mentions(it crawl.Item) bool {
	return slices.ContainsFunc(x.Commits, func(c Commit) bool { return c.Item == it }) ||
		slices.ContainsFunc(x.Maps, func(c MapCommit) bool { return c.Outcome != MapPart && c.Item == it }) ||
		slices.ContainsFunc(x.Returns, func(r Return) bool { return r.Item == it })
}

// commitArgs encodes a commit as commit.lua reads it.
func (s *Store) commitArgs(sl *Slice, c *Commit) ([]any, error) {
	head := []any{s.now(), sl.Job.ID, sl.Gen, c.Item.N, row(c.Item)}
	switch {
	case c.Accepted != nil:
		return acceptedArgs(head, &sl.Plan, c)
	case c.Failed != nil:
		f := storedFailure{Failure: *c.Failed, Parent: c.Item.Parent}
		b, err := json.Marshal(f)
		if err != nil {
			return nil, fmt.Errorf("store: failure: %w", err)
		}
		return append(head, "failed", string(f.ErrorType), b, c.Why), nil
	case c.Skipped != "":
		return append(head, "skipped", string(c.Skipped), c.SkippedTo, c.Why), nil
	case c.Redirect != nil:
		it := c.Item
		it.FetchURL, it.Hops = c.Redirect.URL, c.Redirect.Hops
		return append(head, "redirect", row(it)), nil
	default:
		it := c.Item
		it.Attempt++
		return append(head, "retry", row(it), c.Retry.Milliseconds()), nil
	}
}

func acceptedArgs(head []any, plan *crawl.Plan, c *Commit) ([]any, error) {
	a := c.Accepted
	p := storedPage{Page: a.Page, Parent: c.Item.Parent}
	p.Seq, p.DiscoveredOn, p.Depth = 0, "", c.Item.Depth // known by its place, or by its parent
	p.Item, p.Change = 0, ""                             // said by scripts alone
	var record bytes.Buffer
	if err := writeJSON(&record, &p); err != nil {
		return nil, fmt.Errorf("store: record: %w", err)
	}
	if len(a.Links) > MaxLinks {
		return nil, fmt.Errorf("store: %d links in one commit", len(a.Links))
	}
	if err := checkItems(a.Items); err != nil {
		return nil, err
	}
	args := slices.Grow(head, 10+3*len(a.Links))
	outcome, content := "accepted", a.Content.data
	if c.NoIndex {
		outcome, content = "noindex", nil
	}
	args = append(args, outcome, a.Final[:], record.Bytes(), p.Bytes, strconv.Itoa(c.Item.Depth+1),
		countsArg(a), a.Digest, content, visitArg(plan, c))
	for _, item := range a.Items {
		args = append(args, []byte(item))
	}
	args, err := appendUpserts(args, a, plan)
	if err != nil {
		return nil, err
	}
	return appendLinks(args, a.Links, a.BadLinks), nil
}

// countsArg encodes what a page has as commit.lua reads it. None of it is more than [MaxLinks].
func countsArg(a *Accepted) []byte {
	admissible, refused, patterned := countLinks(a.Links)
	b := make([]byte, 0, 12)
	for _, n := range []int{admissible, refused, patterned, len(a.Items), len(a.Upserts)} {
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	}
	return append(b, byte(flag(a.ListPage)), byte(flag(a.NotModified)))
}

// checkItems refuses what would make a record that nobody can read.
func checkItems(items []json.RawMessage) error {
	if len(items) > MaxItems {
		return fmt.Errorf("store: %d items in one commit", len(items))
	}
	for i, item := range items {
		if !bytes.HasPrefix(item, []byte("{")) || !json.Valid(item) {
			return fmt.Errorf("store: item %d of a page is no JSON object", i+1)
		}
	}
	return nil
}

func flag(set bool) int {
	if set {
		return 1
	}
	return 0
}

// countLinks answers how many links may be admitted, how many are refused, and how many
// of the first belong to a pattern.
func countLinks(links []crawl.Link) (admissible, refused, patterned int) {
	for i := range links {
		switch {
		case links[i].Refused != "":
			refused++
		case links[i].Pattern != "":
			patterned++
		}
	}
	return len(links) - refused, refused, patterned
}

// appendLinks encodes links as links.lua reads them.
func appendLinks(args []any, links []crawl.Link, bad map[crawl.Reason]int) []any {
	size, n := 0, 0
	for i := range links {
		if l := &links[i]; l.Refused == "" {
			args = append(args, l.Key[:])
			size += 2 + len(l.URL.String())
			n++
		}
	}
	urls := make([]byte, 0, size)
	for i := range links {
		if l := &links[i]; l.Refused == "" {
			urls = binary.BigEndian.AppendUint16(urls, uint16(len(l.URL.String())))
		}
	}
	for i := range links {
		if l := &links[i]; l.Refused == "" {
			urls = append(urls, l.URL.String()...)
		}
	}
	args = append(args, urls)
	for i := range links {
		if l := &links[i]; l.Refused != "" {
			args = append(args, l.Key[:], string(l.Refused), l.URL.String())
		}
	}
	n = 0
	for i := range links {
		if l := &links[i]; l.Refused == "" {
			if n++; l.Pattern != "" {
				args = append(args, n, l.Pattern)
			}
		}
	}
	for reason, n := range bad {
		args = append(args, string(reason), n)
	}
	return args
}
