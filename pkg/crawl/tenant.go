package crawl

import "time"

// Quota bounds what one tenant may have of the service. Zero means no bound of its own: a
// tenant's then leaves that of the service as it is, see [Quota.Within].
type Quota struct {
	// MaxQueued bounds the jobs that wait in the tenant's line for their turn; one more is
	// refused with [CodeQuotaExceeded].
	MaxQueued int64 `json:"max_queued"`
	// MaxRunning bounds the jobs that passed the gate and have not ended; the others wait in
	// line ([WaitingTenantQuota]).
	MaxRunning int64 `json:"max_running"`
	// MaxPages bounds the URLs that one job may admit. It bounds max_pages and the number of urls.
	MaxPages int64 `json:"max_pages"`
	// PagesPerDay bounds the pages of all jobs that are settled (accepted, failed or skipped)
	// from one midnight UTC to the next. When it is used up, jobs wait for the next day
	// ([WaitingTenantQuota]) and submissions are refused with [CodeQuotaExceeded].
	PagesPerDay int64 `json:"pages_per_day"`
	// MaxBytes bounds the decoded bytes of the pages of one job, see [Job.Bytes]. The page that
	// crosses it is kept, and so are those in flight beside it; the job is then cut short
	// ([StopByteLimit]). Pages that failed and sitemaps do not count.
	MaxBytes int64 `json:"max_bytes"`
	// MaxKeptBytes bounds the content of pages that one job keeps, as it is stored, see
	// [Job.KeptBytes]. The record that would cross it is kept without content, and says so; the
	// job is then cut short ([StopByteLimit]).
	MaxKeptBytes int64 `json:"max_kept_bytes"`
	// MaxItems bounds the items of one collection. Beyond it nothing new enters; what is in it
	// is still updated.
	MaxItems int64 `json:"max_items"`
	// SubmissionsPerSecond bounds how often the tenant may submit, replays included, with a
	// burst of one second's; one more is refused with [CodeRateLimited].
	SubmissionsPerSecond int64 `json:"submissions_per_second"`
}

// Within returns q narrowed by the bounds of the service: of each the smaller, where zero is
// no bound. A tenant's quota can narrow what the service grants, never widen it.
func (q Quota) Within(service Quota) Quota {
	return Quota{
		MaxQueued:            narrower(q.MaxQueued, service.MaxQueued),
		MaxRunning:           narrower(q.MaxRunning, service.MaxRunning),
		MaxPages:             narrower(q.MaxPages, service.MaxPages),
		PagesPerDay:          narrower(q.PagesPerDay, service.PagesPerDay),
		MaxBytes:             narrower(q.MaxBytes, service.MaxBytes),
		MaxKeptBytes:         narrower(q.MaxKeptBytes, service.MaxKeptBytes),
		MaxItems:             narrower(q.MaxItems, service.MaxItems),
		SubmissionsPerSecond: narrower(q.SubmissionsPerSecond, service.SubmissionsPerSecond),
	}
}

func narrower(a, b int64) int64 {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}

// Tenant is what the service keeps of one of its users. A tenant that it keeps nothing of has
// the zero value but for its name: the service's own bounds.
type Tenant struct {
	Name string
	// Sources is what it may crawl, within what the service allows; nil for all of that, and
	// the empty list for nothing.
	Sources []string
	Quota   Quota
	// Suspended refuses every call of the tenant. Its jobs that were accepted go on.
	Suspended bool
	CreatedAt time.Time // zero for one that nothing is kept of
	UpdatedAt time.Time
}

// APIKey is what the service keeps of a tenant's key: never the key itself.
type APIKey struct {
	ID        string // names the key; it is no secret
	Tenant    string
	Label     string // what it is for, in the words of who made it
	CreatedAt time.Time
	ExpiresAt time.Time // zero for never
}
