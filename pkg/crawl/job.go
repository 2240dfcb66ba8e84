package crawl

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"regexp"
	"time"
)

// JobRef names a job: ids are unknown outside their tenant.
type JobRef struct {
	Tenant string
	ID     string
}

// Ring asks for a slice: it is the doorbell "job J wants attention". N counts
// the rings of a job, from 0; only the store hands out numbers.
type Ring struct {
	JobRef
	N int64
}

// Job is what a status read answers: one consistent picture of a job.
//
//	Total     = Queued + Active + Deferred + Accepted + Failed + Skipped + Cancelled
//	Processed = Accepted + Failed + Skipped
//
// hold at every read.
type Job struct {
	ID          string     `json:"job_id"`
	QueueTaskID string     `json:"queue_task_id"`
	State       State      `json:"state"`
	StopReason  StopReason `json:"stop_reason"`
	// WaitingFor says why a job that has not ended makes no progress now:
	// one of [WaitingTenantQuota] and its neighbours; empty otherwise.
	WaitingFor string `json:"waiting_for"`
	// Position is the place in the tenant's list, from 1, while it waits there for
	// tenant_quota; 0 otherwise, also while the tenant's pages of the day are used up.
	Position int64 `json:"position"`
	// Error says for a person what keeps the job from starting or why it failed.
	Error   string `json:"error"`
	RetryOf string `json:"retry_of"`

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
	// Sitemaps were read, SitemapsFailed could not be, or not to their end. They are no
	// pages: Total and its parts know nothing of them.
	Sitemaps       int64 `json:"sitemaps"`
	SitemapsFailed int64 `json:"sitemaps_failed"`

	SkippedByReason map[Reason]int64 `json:"skipped_by_reason"`
	FailedByType    map[Code]int64   `json:"failed_by_type"`
	RefusedByReason map[Reason]int64 `json:"refused_by_reason"`

	// Report is what the job found for the collections of its tenant.
	Report Report `json:"report"`

	// KeptBytes is what the content of its pages takes in the store.
	KeptBytes int64     `json:"kept_bytes"`
	Bytes     int64     `json:"bytes"` // decoded bytes of the pages that were read: accepted, noindex and aliases
	CreatedAt time.Time `json:"created_at"`
	StartedAt time.Time `json:"started_at"` // zero until a worker began it
	EndedAt   time.Time `json:"ended_at"`   // zero until it ended
	ExpiresAt time.Time `json:"expires_at"` // zero until it ended

	Spec json.RawMessage `json:"spec"` // as submitted, before defaults
	Tags []string        `json:"tags"`
}

// Consistent reports whether the counts of j add up: promise 1.
func (j *Job) Consistent() bool {
	return j.Total == j.Queued+j.Active+j.Deferred+j.Accepted+j.Failed+j.Skipped+j.Cancelled &&
		j.Processed == j.Accepted+j.Failed+j.Skipped
}

var (
	jobIDForm  = regexp.MustCompile(`^j[a-z2-7]{26}$`)
	tenantForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
)

// NewJobID returns the id of a job: derived from tenant and idempotency key,
// so that two submissions of one key cannot even name two jobs, or random
// without a key. It is "j" and 128 bits in lower-case base32: safe in a path, a
// Redis key and an asynq task id.
func NewJobID(tenant, idempotencyKey string) string {
	var sum [16]byte
	if idempotencyKey == "" {
		_, _ = rand.Read(sum[:]) // never fails: crypto/rand aborts the program instead
	} else {
		h := sha256.Sum256([]byte(tenant + "\x00" + idempotencyKey))
		copy(sum[:], h[:])
	}
	return "j" + idEncoding.EncodeToString(sum[:])
}

// ValidJobID reports whether s has the form of a job id. Nothing else may reach
// a key name.
func ValidJobID(s string) bool { return jobIDForm.MatchString(s) }

// ValidTenant reports whether s can name a tenant: 1 to 63 characters of a-z,
// 0-9, - and _, the first a letter or digit. It becomes part of key names and
// of their hash tag.
func ValidTenant(s string) bool { return tenantForm.MatchString(s) }
