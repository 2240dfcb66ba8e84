package crawl

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Spec says what to crawl, as submitted: absent is told from given, so that
// inputs compare before defaults are filled in. An empty list, an empty string, a
// false SortParams and an absent field are the same. Bounds that [Limits] may lower are said as
// those of [DefaultLimits].
type Spec struct {
	// URLs are fetched and nothing else: no link is followed. 1 to 10,000;
	// duplicates by [URL.Key] are dropped, the order is kept. Exactly one of URLs,
	// SeedURL and Seeds is given. No URL holds userinfo or control characters.
	URLs []string `json:"urls,omitempty"`
	// SeedURL is where a site crawl begins.
	SeedURL string `json:"seed_url,omitempty"`
	// Seeds are where a site crawl begins: 1 to 1,000, deduplicated like URLs.
	// Seeds are always admitted; scope, include, exclude and max_depth are for links.
	Seeds []string `json:"seeds,omitempty"`
	// MaxPages bounds the URLs that a site crawl admits, seeds included, redirect
	// hops not: 1 to 1,000,000, not fewer than there are seeds. Default 100, or the
	// number of seeds where that is more.
	MaxPages *int64 `json:"max_pages,omitempty"`
	// MaxDepth bounds the links followed from a seed: 0 (only the seeds) to 100.
	// Default 5.
	MaxDepth *int `json:"max_depth,omitempty"`
	// TimeLimit bounds the time a job runs: 1s to 168h. Default 1h.
	TimeLimit *Duration `json:"time_limit,omitempty"`
	// Scope is prefix, host, domain or any, see [ScopePrefix] and its neighbours.
	// Default host.
	Scope string `json:"scope,omitempty"`
	// Include, if given, admits only links that match one of its patterns; at most
	// 100 of at most 512 bytes. A pattern is a glob or "re:" and an RE2 expression.
	// A glob matches all of the URL, or all of path and query if it begins with "/";
	// "*" is any run without "/", "**" any run, "?" is itself. An expression matches
	// anywhere in the URL; a link on which those of the list take too many steps is refused,
	// see [RuleSteps]. Default: every link.
	Include []string `json:"include,omitempty"`
	// Exclude refuses links that match one of its patterns, whatever Include says;
	// patterns and bounds as in Include. Default: none.
	Exclude []string `json:"exclude,omitempty"`
	// Formats are what is kept of the content of each page: any of [Formats], each once.
	// Default: none; URL, title and links counted.
	Formats []string `json:"formats,omitempty"`
	// MainContent takes the markdown and the text of the main content of a page alone, without
	// navigation, banners and the like, where that can be told. Default false.
	MainContent bool `json:"main_content,omitempty"`
	// Fields are values taken out of each page, by name: at most [MaxFields], those of Items
	// counted as well. Package fields compiles them and says what is wrong with each.
	Fields Fields `json:"fields,omitempty"`
	// Items says that a page holds several records, one for each element that its selector
	// matches. They come behind the record of the page itself.
	Items *Items `json:"items,omitempty"`
	// ListPages are patterns, as in Include, of pages that are there for their links: no
	// Fields are taken out of them, and they enter no collection. For a site crawl.
	ListPages []string `json:"list_pages,omitempty"`
	// Collection is where the records enter that outlive the job. Default: nowhere.
	Collection *Collection `json:"collection,omitempty"`
	// Concurrency bounds the requests of the job in flight over all workers: 1 to
	// 256. Default 8. Hosts have their own bound.
	Concurrency *int `json:"concurrency,omitempty"`
	// Delay is the time between the beginnings of two requests to one host: from
	// the service's own delay to 60s. Default: the service's own.
	Delay *Duration `json:"delay,omitempty"`
	// RespectRobots false crawls what a robots.txt, a robots meta element, an
	// X-Robots-Tag header or rel=nofollow asks not to. Default true.
	RespectRobots *bool `json:"respect_robots,omitempty"`
	// Sitemap says what a site crawl does with the sitemaps of its seeds' hosts:
	// include, only or skip, see [SitemapInclude] and its neighbours. Default include. With URLs
	// no sitemap is read.
	Sitemap string `json:"sitemap,omitempty"`
	// Headers are sent with each request to the origin (scheme, host and port) of an
	// input, and to no other: at most 20, of at most 8 KiB together. Those of the
	// connection, of content coding, of ranges and conditions, of proxies, of browsers (Sec-) and
	// of other methods cannot be set, nor can User-Agent, which is UserAgent. Authorization
	// and Cookie can; no value is shown again.
	Headers Headers `json:"headers,omitempty"`
	// UserAgent is what requests call themselves, at most 256 visible ASCII characters. It
	// begins with a name that a robots.txt can address. Default: the worker's.
	UserAgent string `json:"user_agent,omitempty"`
	// DropParams names query parameters that make no other page: at most 100 of at
	// most 100 bytes. "*" in a name is any run of characters; "tracking" stands for
	// [TrackingParams]. They are dropped from inputs and links, so that they are neither
	// told apart by them nor fetched with them. Default: none.
	DropParams []string `json:"drop_params,omitempty"`
	// SortParams sorts the query parameters of inputs and links by name: for a site that
	// links one page with them in several orders. Default false.
	SortParams bool `json:"sort_params,omitempty"`
	// Tags are for the caller to find the job by: at most 20 of 1 to 64 visible
	// characters, spaces only inside.
	Tags []string `json:"tags,omitempty"`
	// Retention is how long the job is kept after its end: 1m to 720h. Default 72h.
	Retention *Duration `json:"retention,omitempty"`
	// Webhook asks for events of the job to be sent. Default: none are.
	Webhook *Webhook `json:"webhook,omitempty"`
}

// Defaults and bounds of a [Spec] that no [Limits] change.
const (
	MaxSeeds       = 1000
	MaxTags        = 20
	MaxTagRunes    = 64
	MaxDepthBound  = 100
	MaxDelay       = 60 * time.Second
	MinTimeLimit   = time.Second
	MinRetention   = time.Minute
	defaultPages   = 100
	defaultDepth   = 5
	defaultLimit   = time.Hour
	defaultKeep    = 72 * time.Hour
	defaultFlights = 8
)

// What a site crawl does with the sitemaps of its seeds' hosts.
const (
	SitemapInclude = "include" // their URLs are crawled like links of a seed, and so are links of pages
	SitemapOnly    = "only"    // their URLs are, and no link of a page is followed
	SitemapSkip    = "skip"    // they are not read
)

// maxFaultsPerList bounds the faults reported of one list; one more says how many
// are left out. A list of 10,000 URLs with one mistake in each is not better
// explained by 10,000 sentences.
const maxFaultsPerList = 100

// RuleMoreFaults is the rule of the last fault of a list that was cut: it stands for
// those that are left out, and its message says how many they are.
const RuleMoreFaults = "more_faults"

// shownSources is how many of the allowed sources a refusal names. It is repeated for
// every URL that is refused, and a tenant's list may be long.
const shownSources = 5

// Duration is a time.Duration that JSON spells as Go does: "500ms", "1h30m".
type Duration time.Duration

// String returns the Go spelling, for example 1h0m0s.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements encoding.TextMarshaler; JSON uses it too.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler: the form of
// [time.ParseDuration]. The error is a [*Fault] with [CodeInvalid].
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return Faultf(CodeInvalid, `%q is no duration. Write a number and a unit, such as "500ms", "90s" or "1h30m".`,
			clip(string(text)))
	}
	*d = Duration(v)
	return nil
}

// UnmarshalJSON implements json.Unmarshaler. Only strings are durations: a number
// would leave its unit to guess. The error is a [*Fault] with [CodeInvalid].
func (d *Duration) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil // by convention
	}
	// Nearly every string is written without escapes, and means what stands between its quotes.
	if n := len(data) - 1; n > 0 && data[0] == '"' && data[n] == '"' && !bytes.ContainsFunc(data[1:n], escaped) {
		return d.UnmarshalText(data[1:n])
	}
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return Faultf(CodeInvalid, `A duration is a string with a unit, such as "500ms", "90s" or "1h30m", not %s.`,
			clip(string(data)))
	}
	return d.UnmarshalText([]byte(s))
}

// escaped reports whether a character of a JSON string may need another look: RFC 8259 s7.
func escaped(r rune) bool { return r < ' ' || r == '"' || r == '\\' || r >= utf8.RuneSelf }

// Limits bound what a spec may ask for. A field that is zero means that of
// [DefaultLimits], except HostDelay, where zero means no delay.
type Limits struct {
	MaxPages, MaxURLs int64         // of a site crawl; of a list
	Concurrency       int           // requests of one job in flight
	HostDelay         time.Duration // the least delay between two requests to one host
	HostConcurrency   int           // requests to one host in flight, across all jobs
	Retention         time.Duration
	TimeLimit         time.Duration
	MaxBytes          int64 // decoded bytes of all pages of one job; 0 for no bound
	MaxKeptBytes      int64 // bytes of kept content of one job, as stored; 0 for no bound
	MaxItems          int64 // items of one collection; 0 for no bound
}

// DefaultLimits returns the limits of a service that sets none. Half a second
// and two connections a host are what a site notices no more than a person.
func DefaultLimits() Limits {
	return Limits{
		MaxPages: 1_000_000, MaxURLs: 10_000, Concurrency: 256,
		HostDelay: 500 * time.Millisecond, HostConcurrency: 2,
		Retention: 30 * 24 * time.Hour, TimeLimit: 7 * 24 * time.Hour,
	}
}

func (l Limits) orDefault() Limits {
	d := DefaultLimits()
	l.MaxPages = cmp.Or(l.MaxPages, d.MaxPages)
	l.MaxURLs = cmp.Or(l.MaxURLs, d.MaxURLs)
	l.Concurrency = cmp.Or(l.Concurrency, d.Concurrency)
	l.HostConcurrency = cmp.Or(l.HostConcurrency, d.HostConcurrency)
	l.Retention = cmp.Or(l.Retention, d.Retention)
	l.TimeLimit = cmp.Or(l.TimeLimit, d.TimeLimit)
	return l
}

// Plan is a spec with everything decided: what a worker works by. It is stored
// with the job as JSON and holds no list of URLs except the seeds. Before you add a
// field, read what [PlanVersion] says.
type Plan struct {
	V               int           `json:"v,omitempty"`     // see [PlanVersion]; 0 is 1
	Site            bool          `json:"site"`            // follow links
	Seeds           []string      `json:"seeds,omitempty"` // of a site crawl, canonical
	MaxPages        int64         `json:"max_pages"`       // without Site: the number of inputs
	MaxDepth        int           `json:"max_depth"`
	Scope           string        `json:"scope"` // without Site: any, the sources bound redirects
	Include         []string      `json:"include,omitempty"`
	Exclude         []string      `json:"exclude,omitempty"`
	Sources         []string      `json:"sources"` // the tenant's, when the job was submitted
	Concurrency     int           `json:"concurrency"`
	Delay           time.Duration `json:"delay"` // in nanoseconds, like the other durations of a plan
	TimeLimit       time.Duration `json:"time_limit"`
	Retention       time.Duration `json:"retention"`
	HostConcurrency int           `json:"host_concurrency"`
	// The zero values of what follows are those of a plan that an older API stored.

	// IgnoreRobots is false where robots.txt and its kin count.
	IgnoreRobots bool `json:"ignore_robots,omitempty"`
	// Sitemap is one of [SitemapInclude], [SitemapOnly] and [SitemapSkip]; empty means skip.
	Sitemap string `json:"sitemap,omitempty"`
	// Headers go with requests to HeaderOrigins only: ask [Rules.Headers].
	Headers       Headers  `json:"headers,omitempty"`
	HeaderOrigins []string `json:"header_origins,omitempty"` // https://host[:port] of the inputs; none without Headers
	UserAgent     string   `json:"user_agent,omitempty"`     // empty: the worker's own
	DropParams    []string `json:"drop_params,omitempty"`    // see [Rules.Canonical]
	SortParams    bool     `json:"sort_params,omitempty"`
	MaxBytes      int64    `json:"max_bytes,omitempty"`      // 0: no bound
	MaxKeptBytes  int64    `json:"max_kept_bytes,omitempty"` // 0: no bound
	Formats       []string `json:"formats,omitempty"`        // in the order of [Formats]
	MainContent   bool     `json:"main_content,omitempty"`
	Fields        Fields   `json:"fields,omitempty"`
	Items         *Items   `json:"items,omitempty"`
	ListPages     []string `json:"list_pages,omitempty"`
	// Collection has all that its definition says, the key too; nil for none.
	Collection *Collection `json:"collection,omitempty"`
	// Series names what the job crawls, so that a later job of the same inputs is a re-crawl of
	// it: 22 characters of A-Z, a-z, 0-9, - and _; empty without Collection.
	Series   string `json:"series,omitempty"`
	MaxItems int64  `json:"max_items,omitempty"` // of the collection; 0: no bound
	// Trace is the traceparent (W3C Trace Context) of the submission, so that every slice of the
	// job, whoever rang for it, belongs to one trace; empty where nobody traces.
	Trace string `json:"trace,omitempty"`
	// Webhook is canonical, with its events; nil for none. It is stored on its own, because
	// a slice has no use for it.
	Webhook *Webhook `json:"-"`
}

// Input is one URL that a submission names.
type Input struct{ URL URL }

// Validate returns every fault of s, in the order of its fields; nil for none. It
// knows no sources: [Spec.Plan] does.
func (s *Spec) Validate(l Limits) []FieldFault {
	c := s.check(l)
	return c.faults
}

// Plan decides everything that s leaves open and returns the plan and the inputs,
// deduplicated by [URL.Key] in order. The error is a [*Fault] with all faults: of
// [CodeInvalid], or of [CodeSourceNotAllowed] when the only thing wrong is that
// src does not allow some of the URLs.
func (s *Spec) Plan(l Limits, src Sources) (Plan, []Input, error) {
	c := s.check(l)
	invalid := len(c.faults) > 0
	refused := faultList{field: c.field}
	inputs := make([]Input, 0, len(c.urls))
	seen := make(map[Key]struct{}, len(c.urls))
	for _, g := range c.urls {
		if !src.Allows(g.url) {
			refused.add(g.field, "source_not_allowed", sourceMessage(g.url, src))
			continue
		}
		key := g.url.Key()
		if _, ok := seen[key]; ok {
			continue
		}
		seen[key] = struct{}{}
		inputs = append(inputs, Input{URL: g.url})
	}
	if message := c.plan.headerOrigins(inputs); message != "" {
		invalid = true
		c.fault("headers", "max", "%s", message)
	}
	faults := append(c.faults, refused.all()...)
	switch {
	case invalid:
		return Plan{}, nil, &Fault{
			Code: CodeInvalid, Message: "The job cannot be accepted. Mend each of the fields named in errors.", Fields: faults,
		}
	case len(faults) > 0:
		return Plan{}, nil, &Fault{
			Code: CodeSourceNotAllowed, Message: "The job names URLs that may not be crawled here. Leave them out, or ask the operator to allow them.", Fields: faults,
		}
	}
	p := c.plan
	p.Sources = src.Strings()
	if p.Collection != nil {
		p.Series = series(&p, inputs)
	}
	if p.Site {
		for _, in := range inputs {
			p.Seeds = append(p.Seeds, in.URL.String())
		}
	} else {
		p.MaxPages = int64(len(inputs))
	}
	return p, inputs, nil
}

// Digest returns the SHA-256 of the canonical JSON of s, before defaults: what a
// second submission under one idempotency key must equal. The order of keys, white
// space and spellings of one value ("60s", "1m") make no difference; the order of
// a list and a default given explicitly do.
func (s *Spec) Digest() [32]byte {
	sorted := *s
	sorted.Fields = s.Fields.sorted()
	if s.Items != nil {
		items := *s.Items
		items.Fields = items.Fields.sorted()
		sorted.Items = &items
	}
	b, _ := json.Marshal(sorted) // of strings, numbers, durations and what was JSON before: it never fails
	return sha256.Sum256(b)
}

func sourceMessage(u URL, src Sources) string {
	all := src.Strings()
	if len(all) == 0 {
		return clip(u.String()) + " may not be crawled. No sources are allowed here."
	}
	allowed := make([]string, 0, shownSources+1)
	for _, s := range all[:min(len(all), shownSources)] {
		allowed = append(allowed, clip(s))
	}
	if more := len(all) - shownSources; more > 0 {
		allowed = append(allowed, fmt.Sprintf("and %d more", more))
	}
	return clip(u.String()) + " may not be crawled. What is allowed: " + strings.Join(allowed, ", ") + "."
}

// checked is what one pass over a spec finds.
type checked struct {
	limits Limits
	faults []FieldFault
	plan   Plan
	field  string // that names the URLs
	urls   []given
	// params change the URLs before they are compared; their faults are told in the
	// order of the fields.
	params      paramRules
	paramFaults []FieldFault
}

// given is one URL of the input, before duplicates are dropped.
type given struct {
	field string
	url   URL
}

func (c *checked) fault(field, rule, format string, args ...any) {
	c.faults = append(c.faults, FieldFault{Field: field, Rule: rule, Message: fmt.Sprintf(format, args...)})
}

// check fills in defaults and collects every fault.
func (s *Spec) check(l Limits) *checked {
	l = l.orDefault()
	c := &checked{limits: l}
	c.plan.HostConcurrency, c.plan.MaxBytes, c.plan.MaxKeptBytes = l.HostConcurrency, l.MaxBytes, l.MaxKeptBytes
	c.checkParams(s)
	c.checkInputs(s)
	c.checkSite(s)
	c.plan.TimeLimit = c.duration(
		"time_limit", s.TimeLimit, min(defaultLimit, l.TimeLimit), MinTimeLimit, l.TimeLimit)
	c.checkContent(s)
	c.plan.Concurrency = integer(
		c, "concurrency", s.Concurrency, min(defaultFlights, l.Concurrency), 1, l.Concurrency)
	c.plan.Delay = c.duration("delay", s.Delay, l.HostDelay, l.HostDelay, max(MaxDelay, l.HostDelay))
	c.plan.IgnoreRobots = s.RespectRobots != nil && !*s.RespectRobots
	c.checkHeaders(s.Headers)
	c.checkUserAgent(s.UserAgent)
	c.faults = append(c.faults, c.paramFaults...)
	c.checkTags(s.Tags)
	c.plan.Retention = c.duration(
		"retention", s.Retention, min(defaultKeep, l.Retention), MinRetention, l.Retention)
	c.checkWebhook(s.Webhook)
	return c
}

func (c *checked) checkInputs(s *Spec) {
	var fields []string
	if len(s.URLs) > 0 {
		fields = append(fields, "urls")
	}
	if s.SeedURL != "" {
		fields = append(fields, "seed_url")
	}
	if len(s.Seeds) > 0 {
		fields = append(fields, "seeds")
	}
	switch len(fields) {
	case 0:
		c.fault("urls", "required", "Say what to crawl: urls for a list, seed_url or seeds for a site.")
	case 1:
	default:
		c.fault(fields[1], "exclusive",
			"Give only one of urls, seed_url and seeds, not %s.", strings.Join(fields, " and "))
	}
	c.plan.Site = len(s.URLs) == 0
	// Each list is checked although only one may be given: all faults at once.
	c.checkURLs("urls", s.URLs, c.limits.MaxURLs)
	if s.SeedURL != "" {
		list := faultList{field: "seed_url"}
		c.checkURL(&list, "seed_url", s.SeedURL)
		c.faults = append(c.faults, list.all()...)
	}
	c.checkURLs("seeds", s.Seeds, MaxSeeds)
	if len(fields) > 0 {
		c.field = fields[0]
	}
}

func (c *checked) checkURLs(field string, urls []string, most int64) {
	if int64(len(urls)) > most {
		c.fault(field, "max", "Give at most %d URLs, not %d. Submit several jobs.", most, len(urls))
		return
	}
	list := faultList{field: field}
	for i, s := range urls {
		c.checkURL(&list, fmt.Sprintf("%s[%d]", field, i), s)
	}
	c.faults = append(c.faults, list.all()...)
}

func (c *checked) checkURL(list *faultList, field, s string) {
	u, userinfo, err := parse(URL{}, s)
	switch {
	case strings.ContainsFunc(trimControl(s), isControl):
		list.add(field, "control_character", "A URL holds no tabs, line breaks or other control characters. Remove them.")
	case userinfo:
		// Before any other fault of the URL, and without repeating it.
		list.add(field, "userinfo", "A URL holds no user name or password. Leave out what stands before the @.")
	case err != nil:
		list.add(field, string(RefusedReasonOf(err)), sentence(messageOf(err)))
	default:
		c.urls = append(c.urls, given{field: field, url: c.params.canonical(u, false)})
	}
}

func (c *checked) checkSite(s *Spec) {
	if !c.plan.Site {
		for _, f := range []struct {
			name  string
			given bool
		}{
			{"max_pages", s.MaxPages != nil},
			{"max_depth", s.MaxDepth != nil},
			{"scope", s.Scope != ""},
			{"include", len(s.Include) > 0},
			{"exclude", len(s.Exclude) > 0},
			{"sitemap", s.Sitemap != ""},
			{"list_pages", len(s.ListPages) > 0},
		} {
			if f.given {
				c.fault(f.name, "site_only",
					"Leave %s out. It is for a site crawl; with urls no link is followed.", f.name)
			}
		}
		c.plan.Scope, c.plan.Sitemap = ScopeAny, SitemapSkip
		return
	}
	seeds := make(map[Key]struct{}, len(c.urls))
	for _, g := range c.urls {
		seeds[g.url.Key()] = struct{}{}
	}
	least := max(int64(len(seeds)), 1)
	pages := max(min(defaultPages, c.limits.MaxPages), least)
	c.plan.MaxPages = integer(c, "max_pages", s.MaxPages, pages, 1, c.limits.MaxPages)
	switch {
	case least > c.limits.MaxPages:
		c.fault("seeds", "max", "Give at most %d seeds, as many as a job may have pages.", c.limits.MaxPages)
	case c.plan.MaxPages >= 1 && c.plan.MaxPages < least:
		c.fault("max_pages", "min", "Give at least %d. The seeds count as pages too.", least)
	}
	c.plan.MaxDepth = integer(c, "max_depth", s.MaxDepth, defaultDepth, 0, MaxDepthBound)
	c.plan.Scope = s.Scope
	switch s.Scope {
	case "":
		c.plan.Scope = ScopeHost
	case ScopePrefix, ScopeHost, ScopeDomain, ScopeAny:
	default:
		c.faults = append(c.faults, scopeFault(s.Scope))
	}
	_, c.faults = compilePatterns("include", s.Include, c.faults)
	_, c.faults = compilePatterns("exclude", s.Exclude, c.faults)
	c.plan.Include, c.plan.Exclude = s.Include, s.Exclude
	c.plan.Sitemap = cmp.Or(s.Sitemap, SitemapInclude)
	switch c.plan.Sitemap {
	case SitemapInclude, SitemapOnly, SitemapSkip:
	default:
		c.fault("sitemap", "enum", "Give one of include, only and skip, not %q.", clip(s.Sitemap))
	}
}

func (c *checked) checkParams(s *Spec) {
	c.params, c.paramFaults = compileParams(s.DropParams, s.SortParams, nil)
	if len(s.DropParams) > 0 {
		c.plan.DropParams = s.DropParams
	}
	c.plan.SortParams = s.SortParams
}

func (c *checked) checkTags(tags []string) {
	if len(tags) > MaxTags {
		c.fault("tags", "max", "Give at most %d tags, not %d.", MaxTags, len(tags))
		return
	}
	for i, tag := range tags {
		field := fmt.Sprintf("tags[%d]", i)
		switch n := utf8.RuneCountInString(tag); {
		case strings.TrimSpace(tag) == "":
			c.fault(field, "min", "A tag has at least one visible character.")
		case n > MaxTagRunes:
			c.fault(field, "max", "A tag has at most %d characters, not %d.", MaxTagRunes, n)
		case !utf8.ValidString(tag) || strings.ContainsFunc(tag, func(r rune) bool { return !unicode.IsPrint(r) }) ||
			strings.TrimSpace(tag) != tag:
			c.fault(field, "pattern", "A tag holds visible characters only, and spaces only between them.")
		}
	}
}

// duration returns the value of a field, or its default, and reports one out of bounds.
func (c *checked) duration(field string, v *Duration, otherwise, least, most time.Duration) time.Duration {
	if v == nil {
		return otherwise
	}
	d := time.Duration(*v)
	switch {
	case d < least:
		c.fault(field, "min", "Give at least %s, not %s.", least, d)
	case d > most:
		c.fault(field, "max", "Give at most %s, not %s.", most, d)
	}
	return d
}

func integer[T int | int64](c *checked, field string, v *T, otherwise, least, most T) T {
	if v == nil {
		return otherwise
	}
	switch {
	case *v < least:
		c.fault(field, "min", "Give at least %d, not %d.", least, *v)
	case *v > most:
		c.fault(field, "max", "Give at most %d, not %d.", most, *v)
	}
	return *v
}

// faultList collects the faults of one list, up to maxFaultsPerList.
type faultList struct {
	field  string
	faults []FieldFault
	more   int
}

func (l *faultList) add(field, rule, message string) {
	if len(l.faults) == maxFaultsPerList {
		l.more++
		return
	}
	l.faults = append(l.faults, FieldFault{Field: field, Rule: rule, Message: message})
}

func (l *faultList) all() []FieldFault {
	if l.more > 0 {
		return append(l.faults, FieldFault{
			Field: l.field, Rule: RuleMoreFaults,
			Message: fmt.Sprintf("%d more entries have faults. Mend these first.", l.more),
		})
	}
	return l.faults
}

// sentence makes a sentence of what a parser says: a capital and a full stop. Their
// texts have neither, since they also stand inside of other sentences.
func sentence(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	s = string(unicode.ToUpper(r)) + s[n:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}
