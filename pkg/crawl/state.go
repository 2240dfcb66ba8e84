package crawl

import (
	"slices"
	"time"
)

// State is the state of a job. The set is fixed; [State.CanBecome] is the one
// table of what follows what.
type State string

// The states of a job.
const (
	// Queued: stored, no worker has begun it; or resumed, and it has to wait until it
	// may go on. It may wait for the tenant's running limit, see Job.WaitingFor.
	Queued State = "queued"
	// Running: at least one worker has begun it.
	Running State = "running"
	// Paused: nothing new is leased until it is resumed. What was in flight goes on, and
	// may end the job. Its time limit stands still, and [MaxPause] bounds it.
	Paused State = "paused"
	// Cancelling: what was waiting is cancelled, what is in flight is being
	// given back or revoked.
	Cancelling State = "cancelling"
	// Completed: every input was tried and none failed.
	Completed State = "completed"
	// CompletedWithErrors: every input was tried, some failed.
	CompletedWithErrors State = "completed_with_errors"
	// Failed: the job could not go on; StopReason says why.
	Failed State = "failed"
	// Cancelled: stopped before its end, by a caller or by a limit.
	Cancelled State = "cancelled"
)

// MaxPause is how long a job may be paused. It is then cancelled, with [StopTimeLimit]: no
// job lives for ever. It stands in package store's scripts too; a test compares.
const MaxPause = 7 * 24 * time.Hour

// States lists every state in the order a job can pass through them.
var States = []State{Queued, Running, Paused, Cancelling, Completed, CompletedWithErrors, Failed, Cancelled}

// transitions is the only table of what may follow what. The scripts of
// package store implement it; a test walks both and compares.
var transitions = map[State][]State{
	// What was in flight before a pause goes on, in whatever state the job is now, and may be the
	// last of it or have what it may have of bytes.
	Queued:     {Running, Paused, Cancelling, Completed, CompletedWithErrors, Failed, Cancelled},
	Running:    {Paused, Cancelling, Completed, CompletedWithErrors, Failed, Cancelled},
	Paused:     {Queued, Running, Cancelling, Completed, CompletedWithErrors, Failed, Cancelled},
	Cancelling: {Cancelled},
}

// Terminal reports whether s is an end: the record of such a job never changes.
func (s State) Terminal() bool {
	return s == Completed || s == CompletedWithErrors || s == Failed || s == Cancelled
}

// CanBecome reports whether a job in state s may change to state to.
func (s State) CanBecome(to State) bool { return slices.Contains(transitions[s], to) }

// Valid reports whether s is one of [States].
func (s State) Valid() bool { return slices.Contains(States, s) }

// StopReason says why a job ended. It is empty while the job has not.
type StopReason string

// The reasons for which a job ends.
const (
	StopFrontierEmpty StopReason = "frontier_empty" // nothing was left to fetch
	StopPageLimit     StopReason = "page_limit"     // nothing was left, and a link was refused for max_pages
	StopTimeLimit     StopReason = "time_limit"     // time_limit passed, or [MaxPause] did; the job ends as cancelled
	StopByteLimit     StopReason = "byte_limit"     // its pages have all the bytes that it may have; it ends as cancelled
	StopCancelled     StopReason = "cancelled"
	StopSeedFailed    StopReason = "seed_failed" // none of a site crawl's seeds was accepted
	StopInternal      StopReason = "internal"
)

// What a job waits for, see Job.WaitingFor.
const (
	// WaitingTenantQuota: the tenant has as many jobs running as it may, and Job.Position is
	// the place in its line; or, at position 0, its pages of the day are used up.
	WaitingTenantQuota = "tenant_quota"
	WaitingDispatch    = "dispatch"   // the queue did not take the job
	WaitingWorker      = "worker"     // no worker has begun it
	WaitingHostDelay   = "host_delay" // its hosts are to be left alone for a while
	WaitingRetry       = "retry"      // its pages failed for now, and are tried again
	WaitingRobots      = "robots"     // a robots.txt could not be read yet
	WaitingMemory      = "memory"     // Redis is full: it goes on by itself when that has room again
)

// PageState is the state of one admitted URL.
type PageState string

// The states of a page. Each admitted URL is in exactly one of them, so that
// total = queued + active + deferred + accepted + failed + skipped + cancelled.
const (
	PageQueued    PageState = "queued"
	PageActive    PageState = "active"   // leased by a slice
	PageDeferred  PageState = "deferred" // waits for its host or for a retry
	PageAccepted  PageState = "accepted"
	PageFailed    PageState = "failed"
	PageSkipped   PageState = "skipped" // admitted, then not wanted
	PageCancelled PageState = "cancelled"
)

// Reason says why a page was skipped or a link was refused.
type Reason string

// Reasons for which an admitted page is skipped.
const (
	SkipAlias               Reason = "alias"                 // its final URL was recorded by another page
	SkipRedirectOutOfScope  Reason = "redirect_out_of_scope" // it redirects to what the spec leaves out
	SkipRedirectNotAllowed  Reason = "redirect_not_allowed"  // it redirects outside the tenant's sources
	SkipRedirectTrap        Reason = "redirect_trap"         // it redirects to what looks endless
	SkipContentTypeExcluded Reason = "content_type"
	SkipRobots              Reason = "robots"             // robots.txt does not allow it
	SkipRobotsUnreachable   Reason = "robots_unreachable" // robots.txt could not be read, so nothing may be
	SkipNoIndex             Reason = "noindex"            // it asks not to be kept, and its links were followed
)

// Reasons for which a link is refused, that is, never admitted. They are
// counted apart from Job.Total.
const (
	RefusedOutOfScope Reason = "out_of_scope"
	RefusedExcluded   Reason = "excluded"       // an exclude rule matched, or no include rule did
	RefusedDepth      Reason = "depth"          // deeper than max_depth
	RefusedPageLimit  Reason = "page_limit"     // max_pages URLs were admitted already
	RefusedSource     Reason = "source"         // outside what the tenant may crawl
	RefusedScheme     Reason = "scheme"         // not http or https
	RefusedInvalid    Reason = "invalid_url"    // cannot be parsed
	RefusedTooLong    Reason = "url_too_long"   // over MaxURLBytes
	RefusedLinkLimit  Reason = "too_many_links" // beyond MaxLinksPerPage of one page
	RefusedNoFollow   Reason = "nofollow"       // the page or the link asks not to follow it
	RefusedTrap       Reason = "trap"           // looks endless, see [Rules.Check] and [Rules.Pattern]
	// RefusedSitemapLimit is what a sitemap names beyond what is read of it: further
	// sitemaps over their number or nesting, and once for each that was cut short.
	RefusedSitemapLimit Reason = "sitemap_limit"
)
