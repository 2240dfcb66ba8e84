package store

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/trawl/pkg/crawl"
)

// PageRefused is the state of a URL in a list of [Store.URLs] that was linked and never
// admitted. It is none of an admitted page, and such URLs are not in Job.Total.
const PageRefused crawl.PageState = "refused"

// URLStates are the states of the URLs that a job knows, in the order in which
// [Store.URLs] reads them: that in which a URL can pass through them.
var URLStates = []crawl.PageState{
	crawl.PageQueued, crawl.PageActive, crawl.PageDeferred, crawl.PageAccepted, crawl.PageFailed, crawl.PageSkipped,
	crawl.PageCancelled, PageRefused,
}

// skipLists stands for the lists of skipped URLs, of which each reason has one.
const skipLists = "skip"

// containers are the places in which URLs of a state are, as urls.lua names them.
var containers = map[crawl.PageState][]string{
	crawl.PageQueued:    {"queued"},
	crawl.PageActive:    {"leased"},
	crawl.PageDeferred:  {"deferred"},
	crawl.PageAccepted:  {"rec"},
	crawl.PageFailed:    {"err"},
	crawl.PageSkipped:   {skipLists},
	crawl.PageCancelled: {"cancelled_queued", "cancelled_deferred", "cancelled_leased"},
	PageRefused:         {"refused"},
}

// reasonForm is that of reasons and error types. Nothing else may reach a key name.
var reasonForm = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)

// ValidReason reports whether s can be a reason or an error type: 1 to 64 characters of
// a-z, 0-9 and _.
func ValidReason(s string) bool { return reasonForm.MatchString(s) }

// HasReason reports whether URLs in the given state have a reason to be asked for.
func HasReason(state crawl.PageState) bool {
	return state == crawl.PageFailed || state == crawl.PageSkipped || state == PageRefused
}

// URLQuery asks for a page of the URLs that a job knows.
type URLQuery struct {
	State crawl.PageState // one of URLStates, empty for any
	// Reason is that for which URLs were skipped or refused, or the type of the error for
	// which they failed; empty for any. Without State it asks for all three.
	Reason crawl.Reason
	// URL asks for the entries of one URL, however it is spelled; the zero URL for all. A
	// page has those of the Limit entries that were looked at.
	URL   crawl.URL
	From  URLPlace // URLPage.Next of the page before; zero for the first
	Limit int      // 1 to 1000
}

// URLPlace is a place in a list of URLs: the container and how many of its entries
// were read.
type URLPlace struct {
	Container string
	Offset    int64
}

// names returns the containers that q asks for, in the order in which they are read.
func (q *URLQuery) names() []string {
	var names []string
	for _, state := range URLStates {
		if (q.State == "" || q.State == state) && (q.Reason == "" || HasReason(state)) {
			names = append(names, containers[state]...)
		}
	}
	return names
}

// Covers reports whether p can be a place in the list that q asks for, whatever q.From
// is: the cursor of another list would repeat or miss in silence.
func (q *URLQuery) Covers(p URLPlace) bool {
	if p.Container == "" || p.Offset < 0 {
		return p == URLPlace{}
	}
	name := p.Container
	if reason, ok := strings.CutPrefix(name, skipLists+":"); ok {
		if !ValidReason(reason) || q.Reason != "" && reason != string(q.Reason) {
			return false
		}
		name = skipLists
	} else if name == skipLists {
		return false
	}
	return slices.Contains(q.names(), name)
}

// URLEntry is one URL that a job knows, and what became of it.
type URLEntry struct {
	URL   string // as linked
	State crawl.PageState
	// Reason is why the URL was skipped or refused, or the error for which it failed.
	Reason crawl.Reason
	// Rule says for a person which rule decided, where one did: a line of robots.txt, a
	// pattern, a bound.
	Rule         string
	Depth        int    // links followed from an input
	DiscoveredOn string // SourceURL of what linked here first; empty for an input
	// Attempts are the tries that failed or were lost; of accepted and failed pages all
	// tries, the last included.
	Attempts int
	NextAt   time.Time // when a deferred URL is due; zero in any other state
	FetchURL string    // what is fetched in its place since a redirect led there; usually empty
	// FinalURL is where an accepted or failed page ended, or where a skipped one led.
	FinalURL string
	AliasOf  string // SourceURL of the record that has FinalURL, of an alias
	Seq      int64  // of its record, or of that of which it is an alias; 0 for none
	Status   int    // of the HTTP answer to an accepted or failed page; 0 without one
	Message  string // for a person, of a failed page
}

// URLPage is one page of the URLs that a job knows. It can be short, or empty, although
// More is set: the work of one call is bounded, not the answer.
type URLPage struct {
	URLs  []URLEntry
	Next  URLPlace // pass as From to go on
	More  bool     // more is there now
	Ended bool     // the job ended: nothing will change any more
}

// ledger gathers a page while it is read.
type ledger struct {
	URLPage
	parents []int64 // of each of URLs
	aliased []int64 // the record of which each of URLs is an alias, 0 for none
}

// URLs reads the URLs that a job knows, by state, in the order of [URLStates]: within a
// state as the job holds them, skipped ones by the name of their reason. Of an ended job
// the pages together have each URL exactly once. While it runs URLs move on from state to
// state, so that one may be met twice, or missed, between two pages. Of refused URLs the
// first 10,000 are remembered. Faults: not_found, expired, malformed for a place that
// the list does not have.
func (s *Store) URLs(ctx context.Context, j crawl.JobRef, q URLQuery) (URLPage, error) {
	if !q.Covers(q.From) {
		return URLPage{}, crawl.Faultf(crawl.CodeMalformed, "This is no place in the list that is asked for. Begin again.")
	}
	args := []any{q.Limit, string(q.Reason), q.From.Container, q.From.Offset}
	for _, name := range q.names() {
		args = append(args, name)
	}
	a, err := s.one(ctx, urlsScript, s.keys(j), args...)
	if err != nil {
		return URLPage{}, err
	}
	if str(a[0]) == "" {
		return URLPage{}, s.missing(ctx, j)
	}
	l := ledger{URLPage: URLPage{
		Next: URLPlace{str(a[1]), num(a[2])}, More: num(a[3]) == 1, Ended: crawl.State(str(a[0])).Terminal(),
	}}
	for i := 5; i+2 < len(a); i += 3 {
		entries, _ := a[i+2].([]any)
		for _, e := range entries {
			if err := l.add(str(a[i]), str(e)); err != nil {
				return URLPage{}, err
			}
		}
	}
	if !q.URL.IsZero() {
		l.keep(q.URL)
	}
	explain(l.URLs, str(a[4]))
	return l.URLPage, s.resolve(ctx, j, &l)
}

// resolve puts the URLs of other records in the place of their numbers.
func (s *Store) resolve(ctx context.Context, j crawl.JobRef, l *ledger) error {
	known := map[int64]cited{}
	for _, u := range l.URLs {
		if u.State == crawl.PageAccepted {
			known[u.Seq] = cited{u.URL, u.FinalURL}
		}
	}
	if err := s.cite(ctx, j, slices.Concat(l.parents, l.aliased), known); err != nil {
		return err
	}
	for i := range l.URLs {
		u := &l.URLs[i]
		u.DiscoveredOn = known[l.parents[i]].SourceURL
		if seq := l.aliased[i]; seq != 0 {
			u.Seq, u.AliasOf, u.FinalURL = seq, known[seq].SourceURL, known[seq].URL
		}
	}
	return nil
}

// keep leaves the entries of one URL.
func (l *ledger) keep(wanted crawl.URL) {
	key, n := wanted.Key(), 0
	for i := range l.URLs {
		// Most URLs are spelled in one way, and most are another one.
		same := l.URLs[i].URL == wanted.String()
		if !same {
			u, err := crawl.ParseURL(l.URLs[i].URL)
			same = err == nil && u.PolitenessHost() == wanted.PolitenessHost() && u.Key() == key
		}
		if same {
			l.URLs[n], l.parents[n], l.aliased[n] = l.URLs[i], l.parents[i], l.aliased[i]
			n++
		}
	}
	l.URLs, l.parents, l.aliased = l.URLs[:n], l.parents[:n], l.aliased[:n]
}

// add reads an entry of a container.
func (l *ledger) add(container, text string) error {
	var (
		u               URLEntry
		parent, aliased int64
		err             error
	)
	name, reason, _ := strings.Cut(container, ":")
	switch name {
	case "rec":
		u, parent, err = acceptedURL(text)
	case "err":
		u, parent, err = failedURL(text)
	case "refused":
		u, parent, err = refusedURL(text)
	case skipLists:
		u, parent, aliased, err = skippedURL(crawl.Reason(reason), text)
	default:
		u, parent, err = frontierURL(name, text)
	}
	if err != nil {
		return fmt.Errorf("store: entry of %s: %w", container, err)
	}
	l.URLs = append(l.URLs, u)
	l.parents, l.aliased = append(l.parents, parent), append(l.aliased, aliased)
	return nil
}

// acceptedURL reads the number of a record, a space, and the record.
func acceptedURL(text string) (u URLEntry, parent int64, err error) {
	number, text, _ := strings.Cut(text, " ")
	seq, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return u, 0, err
	}
	var p storedPage
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return u, 0, err
	}
	return URLEntry{
		URL: p.SourceURL, State: crawl.PageAccepted, Depth: p.Depth, Attempts: p.Attempts, FinalURL: p.URL, Seq: seq,
		Status: p.Status,
	}, p.Parent, nil
}

func failedURL(text string) (u URLEntry, parent int64, err error) {
	var f storedFailure
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		return u, 0, err
	}
	return URLEntry{
		URL: f.SourceURL, State: crawl.PageFailed, Reason: crawl.Reason(f.ErrorType), Depth: f.Depth, Attempts: f.Attempts,
		FinalURL: f.URL, Status: f.Status, Message: f.Message,
	}, f.Parent, nil
}

// refusedURL reads "reason depth parent url". A tab and the rule may follow.
func refusedURL(text string) (u URLEntry, parent int64, err error) {
	text, rule, _ := strings.Cut(text, "\t")
	f := strings.Split(text, " ")
	if len(f) != 4 {
		return u, 0, fmt.Errorf("%d fields", len(f))
	}
	depth, err := strconv.Atoi(f[1])
	if err != nil {
		return u, 0, err
	}
	parent, err = strconv.ParseInt(f[2], 10, 64)
	return URLEntry{URL: f[3], State: PageRefused, Reason: crawl.Reason(f[0]), Rule: rule, Depth: depth}, parent, err
}

// skippedURL reads a row, a tab, and what it was skipped about: the number of a record,
// the URL to which it led, or the rule.
func skippedURL(reason crawl.Reason, text string) (u URLEntry, parent, aliased int64, err error) {
	text, detail, _ := strings.Cut(text, "\t")
	u, parent, err = rowURL(crawl.PageSkipped, text)
	if err != nil {
		return u, 0, 0, err
	}
	u.Reason = reason
	switch {
	case reason == crawl.SkipAlias:
		aliased, err = strconv.ParseInt(detail, 10, 64)
	case strings.HasPrefix(string(reason), "redirect_"):
		u.FinalURL = detail
	default:
		u.Rule = detail
	}
	return u, parent, aliased, err
}

// frontierURL reads a row of what waits, is leased or was cancelled. A deferred one has a
// tab and the time it is due behind it.
func frontierURL(container, text string) (u URLEntry, parent int64, err error) {
	text, due, _ := strings.Cut(text, "\t")
	u, parent, err = rowURL(stateIn(container), text)
	if err != nil || due == "" {
		return u, parent, err
	}
	ms, err := strconv.ParseFloat(due, 64) // as Redis spells scores
	u.NextAt = time.UnixMilli(int64(ms)).UTC()
	return u, parent, err
}

// stateIn returns the state of the URLs in a container, which is where they are.
func stateIn(container string) crawl.PageState {
	for state, names := range containers {
		if slices.Contains(names, container) {
			return state
		}
	}
	return ""
}

func rowURL(state crawl.PageState, text string) (u URLEntry, parent int64, err error) {
	it, err := parseRow(text)
	if err != nil {
		return u, 0, err
	}
	return URLEntry{
		URL: it.URL, State: state, Depth: it.Depth, Attempts: it.Attempt, FetchURL: it.FetchURL,
	}, it.Parent, nil
}

// maxRule bounds what is said of a rule, in bytes: it is repeated for every URL, and a list
// of sources may be long. A pattern is never cut.
const maxRule = crawl.MaxPatternBytes

// explain fills in the rules of the job that refused links. They are not stored with each
// refusal, since the plan says them all, and decides the same again.
func explain(urls []URLEntry, planText string) {
	if planText == "" {
		return
	}
	var plan crawl.Plan
	if json.Unmarshal([]byte(planText), &plan) != nil {
		return // the list is right without its rules
	}
	rules, err := plan.Rules()
	if err != nil {
		return // as above
	}
	for i := range urls {
		u := &urls[i]
		if u.State != PageRefused || u.Rule != "" {
			continue
		}
		if u.Reason == crawl.RefusedPageLimit {
			u.Rule = fmt.Sprintf("max_pages %d", plan.MaxPages)
			continue
		}
		link, err := crawl.ParseURL(u.URL)
		if err != nil {
			continue
		}
		if reason, rule := rules.Explain(link, u.Depth); reason == u.Reason {
			u.Rule = clip(rule, maxRule)
		}
	}
}

// clip shortens s to at most n bytes, between two characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-len("…")], "") + "…"
}
