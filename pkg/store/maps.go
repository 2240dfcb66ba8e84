package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"example.com/trawl/pkg/crawl"
)

// MapOutcome says what a [MapCommit] is about.
type MapOutcome string

// The outcomes of a leased sitemap.
const (
	// MapPart records some of what it names; the slice keeps the item, and more is to come.
	MapPart MapOutcome = "part"
	// MapRead records the rest: the item is done.
	MapRead MapOutcome = "read"
	// MapNone: there is no sitemap where one was guessed. It is done, and counted nowhere.
	MapNone MapOutcome = "none"
	// MapListed: the site itself names its sitemaps, which Nested has, so that the usual
	// place was not asked. It is done, and counted nowhere.
	MapListed MapOutcome = "listed"
	// MapFailed: it could not be read, or not to its end. It is done.
	MapFailed MapOutcome = "failed"
	// MapRetry sends the item back with one attempt more, due after Retry.
	MapRetry MapOutcome = "retry"
)

// MapCommit is what a leased sitemap named, or some of it, or what became of it. Links,
// Nested and BadLinks of one that is tried again are not recorded.
type MapCommit struct {
	Item    crawl.Item
	Outcome MapOutcome
	// Part numbers the parts of one item by one slice, which never uses a number twice: a
	// part that is sent again counts once. Other outcomes need none.
	Part int
	// After is the last part that was recorded before this, 0 for none. A store that lacks it went
	// back: the answer is [Stale], and the item is to be given back and read again.
	After int
	// Links are the pages that it names, with the verdict of the job's rules at depth 1,
	// and the sitemaps that must not be read, as refused. At most [MaxLinks].
	Links []MapLink
	// Nested are the sitemaps that it names. Those that the job knows are passed over, and
	// those beyond 1,000 a job or 3 levels are counted as refused for [crawl.RefusedSitemapLimit].
	// At most [MaxLinks].
	Nested []crawl.URL
	// BadLinks counts what it names and is no URL, by reason.
	BadLinks map[crawl.Reason]int
	Retry    time.Duration
}

// MapLink is one page that a sitemap names.
type MapLink struct {
	crawl.Link
	LastMod time.Time // when the page was last changed; zero when the sitemap does not say
}

// MapCommitted is the answer to one [MapCommit].
type MapCommitted struct {
	Verdict Verdict // [Done] or [Stale]
	Full    bool    // the job has no room for more pages: the rest is not worth reading
}

// mapParent divides what an item's Parent names: below it a record by its number, above
// it a sitemap by its own. No job has so many records.
const mapParent = 1_000_000_000_000

// rootMaps answers the usual place of the sitemap of each origin that a site crawl begins
// at, each once.
func rootMaps(n *NewJob) ([]crawl.URL, error) {
	if !n.Plan.Site || n.Plan.Sitemap != crawl.SitemapInclude && n.Plan.Sitemap != crawl.SitemapOnly {
		return nil, nil
	}
	var maps []crawl.URL
	seen := map[crawl.Key]bool{}
	for _, in := range n.Inputs {
		u, err := in.URL.Resolve("/sitemap.xml")
		if err != nil {
			return nil, fmt.Errorf("store: sitemap of %s: %w", in.URL, err) // a URL that was parsed has such a path
		}
		if k := u.Key(); !seen[k] {
			seen[k] = true
			maps = append(maps, u)
		}
	}
	return maps, nil
}

// mapArgs encodes a commit as commit_map.lua reads it.
func (s *Store) mapArgs(sl *Slice, c *MapCommit) ([]any, error) {
	args := []any{s.now(), sl.Job.ID, sl.Gen, c.Item.N, row(c.Item), string(c.Outcome)}
	if c.Outcome == MapRetry {
		it := c.Item
		it.Attempt++
		return append(args, row(it), c.Retry.Milliseconds()), nil
	}
	if len(c.Links) > MaxLinks || len(c.Nested) > MaxLinks {
		return nil, fmt.Errorf("store: %d links and %d sitemaps in one commit", len(c.Links), len(c.Nested))
	}
	var own crawl.Key
	if c.Outcome == MapListed {
		u, err := crawl.ParseURL(c.Item.URL)
		if err != nil {
			return nil, fmt.Errorf("store: sitemap: %w", err)
		}
		own = u.Key()
	}
	links := make([]crawl.Link, len(c.Links))
	var stamps []any
	index := 0 // among those that may be admitted
	for i := range c.Links {
		links[i] = c.Links[i].Link
		if links[i].Refused != "" {
			continue
		}
		if index++; !c.Links[i].LastMod.IsZero() {
			stamps = append(stamps, index, c.Links[i].LastMod.UnixMilli())
		}
	}
	admissible, refused, patterned := countLinks(links)
	args = slices.Grow(args, 9+2*len(c.Nested)+len(stamps)+3*len(links))
	args = append(args, c.Part, own[:], c.Item.Depth+1, len(c.Nested), admissible, refused, patterned, len(stamps)/2, c.After)
	for _, u := range c.Nested {
		k := u.Key()
		args = append(args, k[:], u.String())
	}
	return appendLinks(append(args, stamps...), links, c.BadLinks), nil
}

// citeMaps adds the URLs of the sitemaps among the given parents to known.
func (s *Store) citeMaps(ctx context.Context, j crawl.JobRef, parents []int64, known map[int64]cited) error {
	var fields []string
	wanted := map[int64]bool{}
	for _, p := range parents {
		if p > mapParent && !wanted[p] {
			wanted[p] = true
			fields = append(fields, strconv.FormatInt(p-mapParent, 10))
		}
	}
	if len(fields) == 0 {
		return nil
	}
	s.trips.Add(1)
	urls, err := s.rdb.HMGet(ctx, jobKey(j)+":mapurls", fields...).Result()
	if err != nil {
		return fault(err)
	}
	for i, v := range urls {
		if u, ok := v.(string); ok { // else removed meanwhile with its job
			n, _ := strconv.ParseInt(fields[i], 10, 64)
			known[mapParent+n] = cited{SourceURL: u, URL: u}
		}
	}
	return nil
}
