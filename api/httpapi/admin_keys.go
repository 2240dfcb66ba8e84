package httpapi

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"log/slog"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

// Where the keys of a tenant are kept.
const (
	pathKeys   = pathTenant + "/keys"
	pathKey    = pathKeys + "/{key_id}"
	pathRotate = pathKey + "/rotate"
)

const (
	maxLabel   = 100                       // in characters
	minKeyLife = time.Minute               // a shorter one ends before it is put to use
	maxKeyLife = 10 * 365 * 24 * time.Hour // who wants more wants a key without an end
	maxOverlap = 30 * 24 * time.Hour       // how long two keys may do the same
)

// duration is a duration as bodies have it.
type duration struct{ crawl.Duration }

// noDays is for who writes 30d, which is no duration of Go's.
const noDays = `There are no days: 30 days are "720h".`

// UnmarshalJSON implements json.Unmarshaler.
func (d *duration) UnmarshalJSON(data []byte) error {
	if err := d.Duration.UnmarshalJSON(data); err != nil {
		return crawl.Faultf(crawl.CodeInvalid, "%s %s", messageOf(err), noDays)
	}
	return nil
}

// inHours spells a whole number of minutes or hours without the zeros behind them: 87600h.
func inHours(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-len("0s")]
		}
	}
	return text
}

// Schema documents the form.
func (duration) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type: huma.TypeString, Pattern: `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`, Examples: []any{"720h"},
	}
}

// newAPIKey is the body of POST /v1/admin/tenants/{tenant}/keys.
type newAPIKey struct {
	Label     string    `json:"label,omitempty" maxLength:"100" doc:"What the key is for: at most 100 visible characters and spaces."`
	ExpiresIn *duration `json:"expires_in,omitempty" doc:"How long the key is good, as 720h: from 1m to 87600h. Without it, until it is revoked."`
}

// rotation is the body of POST /v1/admin/tenants/{tenant}/keys/{key_id}/rotate.
type rotation struct {
	Overlap   *duration `json:"overlap,omitempty" doc:"How long the old key is still good, as 1h: at most 720h. Default 0s: it ends at once."`
	ExpiresIn *duration `json:"expires_in,omitempty" doc:"How long the new key is good, as 720h: from 1m to 87600h. Without it, as long as the old one was to be when it was made."`
}

// keyRecord is a key as the admin API shows it: never the key itself.
type keyRecord struct {
	KeyID     string  `json:"key_id" doc:"Names the key; it is no secret."`
	Label     string  `json:"label"`
	CreatedAt string  `json:"created_at" format:"date-time"`
	ExpiresAt *string `json:"expires_at" format:"date-time" doc:"null for never."`
}

// shownKey is a key that was just made.
type shownKey struct {
	KeyID     string  `json:"key_id" doc:"Names the key; it is no secret."`
	Key       string  `json:"key" doc:"The key. It is shown this once: the service keeps only its SHA-256."`
	Label     string  `json:"label"`
	CreatedAt string  `json:"created_at" format:"date-time"`
	ExpiresAt *string `json:"expires_at" format:"date-time" doc:"null for never."`
}

// keyPage is all keys of a tenant: there are not so many that they need pages.
type keyPage page[keyRecord]

var (
	keyExamples = map[string]*huma.Example{
		"labelled": {Summary: "For a month", Value: map[string]any{"label": "nightly crawl", "expires_in": "720h"}},
	}
	rotationExamples = map[string]*huma.Example{
		"overlap": {Summary: "With an hour to change over", Value: map[string]any{"overlap": "1h"}},
	}
)

// keyRoutes adds the keys to the admin API; body holds the codes of what takes one.
func (s *Server) keyRoutes(body []crawl.Code) {
	body = append(body, crawl.CodeNotFound, crawl.CodeQuotaExceeded)
	adminRoute(s, adminOperation("create-key", http.MethodPost, pathKeys,
		"Make a key of a tenant; it is shown this once", http.StatusCreated, body...), s.createKey)
	adminRoute(s, adminOperation("list-keys", http.MethodGet, pathKeys,
		"List the keys of a tenant that are good, the oldest first", http.StatusOK, crawl.CodeNotFound), s.listKeys)
	adminRoute(s, adminOperation("rotate-key", http.MethodPost, pathRotate,
		"Make a key in the place of another, which ends", http.StatusCreated, body...), s.rotateKey)
	adminRoute(s, adminOperation("revoke-key", http.MethodDelete, pathKey,
		"End a key: here at once, in other processes within 5 s", http.StatusNoContent,
		crawl.CodeNotFound, crawl.CodeOverloaded), s.revokeKey)
	s.takes(pathKeys, http.MethodPost, reflect.TypeFor[newAPIKey](), keyExamples)
	s.takes(pathRotate, http.MethodPost, reflect.TypeFor[rotation](), rotationExamples)
	for _, path := range []string{pathKeys, pathRotate} {
		s.api.OpenAPI().Paths[path].Post.RequestBody.Required = false
	}
}

type keyOutput struct {
	Body shownKey
}

// mint makes a key of 130 random bits and what is kept of it.
func mint(tenant, label string, life *duration) (string, store.NewKey) {
	key := keyPrefix + rand.Text()
	k := store.NewKey{Tenant: tenant, Digest: sha256.Sum256([]byte(key)), Label: label}
	if life != nil {
		k.ExpiresAt = time.Now().Add(time.Duration(life.Duration))
	}
	return key, k
}

func shownOnce(key string, k *crawl.APIKey) *keyOutput {
	return &keyOutput{Body: shownKey{
		KeyID: k.ID, Key: key, Label: k.Label, CreatedAt: timestamp(k.CreatedAt), ExpiresAt: timeUnlessZero(k.ExpiresAt),
	}}
}

// decodeOptional is [decodeBody] for a body that may be left out, as all that it could say may.
func decodeOptional[T any](ctx context.Context, s *Server, x *exchange, check func(*T) error) error {
	if x.c.Request.ContentLength == 0 {
		return nil
	}
	return decodeBody(ctx, s, x, check)
}

// within holds a duration to its bounds.
func (f *bodyFaults) within(field string, d *duration, least, most time.Duration) {
	if d != nil && (time.Duration(d.Duration) < least || time.Duration(d.Duration) > most) {
		f.add(field, ruleRange, "Give a duration from %s to %s. %s", inHours(least), inHours(most), noDays)
	}
}

func (f *bodyFaults) label(s string) {
	invisible := func(r rune) bool { return !unicode.IsPrint(r) }
	switch {
	case utf8.RuneCountInString(s) > maxLabel:
		f.add("label", ruleMax, "A label has at most %d characters.", maxLabel)
	case strings.ContainsFunc(s, invisible):
		f.add("label", ruleFormat, "A label has visible characters and spaces only.")
	}
}

func (s *Server) createKey(ctx context.Context, x *exchange, in *tenantInput) (*keyOutput, error) {
	if err := in.valid(); err != nil {
		return nil, err
	}
	var body newAPIKey
	err := decodeOptional(ctx, s, x, func(b *newAPIKey) error {
		var f bodyFaults
		f.label(b.Label)
		f.within("expires_in", b.ExpiresIn, minKeyLife, maxKeyLife)
		body = *b
		return f.err()
	})
	if err != nil {
		return nil, err
	}
	key, kept := mint(in.Tenant, body.Label, body.ExpiresIn)
	k, err := prompt(ctx, func(ctx context.Context) (crawl.APIKey, error) { return s.o.Tenants.AddKey(ctx, kept) })
	if err != nil {
		return nil, err
	}
	s.logChange(ctx, x, "create-key", in.Tenant, slog.String("key_id", k.ID))
	return shownOnce(key, &k), nil
}

type listKeysOutput struct {
	Body keyPage
}

func (s *Server) listKeys(ctx context.Context, _ *exchange, in *tenantInput) (*listKeysOutput, error) {
	if err := in.valid(); err != nil {
		return nil, err
	}
	keys, err := prompt(ctx, func(ctx context.Context) ([]crawl.APIKey, error) { return s.o.Tenants.Keys(ctx, in.Tenant) })
	if err != nil {
		return nil, err
	}
	out := &listKeysOutput{Body: keyPage{Items: make([]keyRecord, len(keys))}}
	for i, k := range keys {
		out.Body.Items[i] = keyRecord{
			KeyID: k.ID, Label: k.Label, CreatedAt: timestamp(k.CreatedAt), ExpiresAt: timeUnlessZero(k.ExpiresAt),
		}
	}
	return out, nil
}

// keyInput names the key of a path.
type keyInput struct {
	Tenant string `path:"tenant" doc:"Name of the tenant."`
	KeyID  string `path:"key_id" doc:"Identity of the key, as key_id."`
}

// keyIDForm is wider than what the store makes: it only keeps out what is no id at all.
var keyIDForm = regexp.MustCompile(`^[a-z0-9]{1,64}$`)

func (in *keyInput) valid() error {
	if !crawl.ValidTenant(in.Tenant) || !keyIDForm.MatchString(in.KeyID) {
		return crawl.Faultf(crawl.CodeNotFound, "no such key")
	}
	return nil
}

func (s *Server) rotateKey(ctx context.Context, x *exchange, in *keyInput) (*keyOutput, error) {
	if err := in.valid(); err != nil {
		return nil, err
	}
	var body rotation
	err := decodeOptional(ctx, s, x, func(b *rotation) error {
		var f bodyFaults
		f.within("overlap", b.Overlap, 0, maxOverlap)
		f.within("expires_in", b.ExpiresIn, minKeyLife, maxKeyLife)
		body = *b
		return f.err()
	})
	if err != nil {
		return nil, err
	}
	var overlap time.Duration
	if body.Overlap != nil {
		overlap = time.Duration(body.Overlap.Duration)
	}
	key, next := mint(in.Tenant, "", body.ExpiresIn)
	k, err := prompt(ctx, func(ctx context.Context) (crawl.APIKey, error) {
		return s.o.Tenants.RotateKey(ctx, in.Tenant, in.KeyID, overlap, next)
	})
	if err != nil {
		return nil, err
	}
	s.logChange(ctx, x, "rotate-key", in.Tenant, slog.String("key_id", in.KeyID), slog.String("new_key_id", k.ID))
	return shownOnce(key, &k), nil
}

type revokeOutput struct{}

func (s *Server) revokeKey(ctx context.Context, x *exchange, in *keyInput) (*revokeOutput, error) {
	if err := in.valid(); err != nil {
		return nil, err
	}
	_, err := prompt(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.o.Tenants.RevokeKey(ctx, in.Tenant, in.KeyID)
	})
	if err != nil {
		return nil, err
	}
	s.logChange(ctx, x, "revoke-key", in.Tenant, slog.String("key_id", in.KeyID))
	return &revokeOutput{}, nil
}
