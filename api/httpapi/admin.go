package httpapi

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

// Where tenants are kept, see [Server.adminRoutes].
const (
	pathTenants = "/v1/admin/tenants"
	pathTenant  = pathTenants + "/{tenant}"
)

const (
	// maxTenantSources bounds a tenant's own list: each call is checked by it, entry by entry.
	maxTenantSources = 100
	// maxSourceBytes bounds one entry: a host of 253 bytes and a path are less.
	maxSourceBytes = 512
)

// Schemes of the document that are there when the service has what they stand for.
const (
	schemeGateway  = "gateway"
	schemeTenant   = "gatewayTenant"
	schemeAdmin    = "admin"
	schemeAdminKey = "adminApiKey"
)

// describeKeys adds to the document who may call besides the tenants themselves.
func (s *Server) describeKeys() {
	schemes := s.api.OpenAPI().Components.SecuritySchemes
	if s.gateway.set {
		schemes[schemeGateway] = &huma.SecurityScheme{
			Type: "apiKey", In: "header", Name: headerGatewaySecret,
			Description: "The secret of a gateway in front, which names the tenant. Authorization is not looked at then.",
		}
		schemes[schemeTenant] = &huma.SecurityScheme{
			Type: "apiKey", In: "header", Name: headerTenantID,
			Description: "The tenant that the gateway calls for. Not believed without its secret.",
		}
	}
	if s.administered() {
		schemes[schemeAdmin] = &huma.SecurityScheme{
			Type: "http", Scheme: "bearer", Description: "The admin key of the service; it is no tenant's key.",
		}
		schemes[schemeAdminKey] = &huma.SecurityScheme{
			Type: "apiKey", In: "header", Name: "X-API-Key", Description: "The same in a header of its own.",
		}
	}
}

// administered reports whether there is an admin API.
func (s *Server) administered() bool { return s.admin.set && s.o.Tenants != nil }

// adminRoutes adds the admin API: tenants, their bounds and their keys.
func (s *Server) adminRoutes() {
	body := []crawl.Code{
		crawl.CodeMalformed, crawl.CodeBodyTooLarge, codeUnsupportedMediaType, crawl.CodeOverloaded,
	}
	adminRoute(s, adminOperation("create-tenant", http.MethodPost, pathTenants,
		"Keep a tenant, with bounds of its own", http.StatusCreated,
		append(body, crawl.CodeTenantExists)...), s.createTenant)
	adminRoute(s, adminOperation("list-tenants", http.MethodGet, pathTenants,
		"List the tenants that are kept, by name", http.StatusOK, crawl.CodeMalformed), s.listTenants)
	adminRoute(s, adminOperation("get-tenant", http.MethodGet, pathTenant,
		"Read what is kept of a tenant, and what holds for it", http.StatusOK, crawl.CodeNotFound), s.tenant)
	adminRoute(s, adminOperation("change-tenant", http.MethodPatch, pathTenant,
		"Change the bounds of a tenant; what is left out stays as it is", http.StatusOK,
		append(body, crawl.CodeNotFound, crawl.CodeWrongState)...), s.changeTenant)
	s.takes(pathTenants, http.MethodPost, reflect.TypeFor[newTenant](), tenantExamples)
	s.takes(pathTenant, http.MethodPatch, reflect.TypeFor[tenantChange](), changeExamples)
	s.keyRoutes(body)
	s.logLevelRoutes(body)
}

func adminOperation(
	id, method, path, summary string, success int, codes ...crawl.Code,
) huma.Operation {
	op := operation(id, method, path, summary, success, codes...)
	op.Tags, op.Security = []string{"admin"}, []map[string][]string{{schemeAdmin: {}}, {schemeAdminKey: {}}}
	return op
}

// adminRoute adds a route that the admin key opens, and it alone.
func adminRoute[I, O any](s *Server, op huma.Operation, handle handler[I, O]) {
	changes := op.Method != http.MethodGet
	serve(s, op, s.authenticateAdmin, func(ctx context.Context, x *exchange, in *I) (*O, error) {
		if changes {
			// Also when it fails: a call without an answer may have changed something.
			defer s.accounts.forget()
		}
		return handle(ctx, x, in)
	})
}

// takes documents the body of a route, which the strict decoder reads.
func (s *Server) takes(path, method string, t reflect.Type, examples map[string]*huma.Example) {
	item := s.api.OpenAPI().Paths[path]
	op := map[string]*huma.Operation{
		http.MethodPost: item.Post, http.MethodPatch: item.Patch, http.MethodPut: item.Put,
	}[method]
	op.RequestBody = requestBody(s.api.OpenAPI().Components.Schemas, t, examples)
}

// numbersOf is crawl.Quota with what the document says of it, and with its bounds: those that
// the settings of the service have, and 0.
type numbersOf[N int64 | *int64] struct {
	MaxQueued            N `json:"max_queued" required:"false" minimum:"0" maximum:"1000000" doc:"Jobs that may wait for their turn; 0 for no bound."`
	MaxRunning           N `json:"max_running" required:"false" minimum:"0" maximum:"10000" doc:"Jobs that run at once, the others wait; 0 for no bound."`
	MaxPages             N `json:"max_pages" required:"false" minimum:"0" maximum:"1000000" doc:"URLs that one job may admit; 0 for no bound."`
	PagesPerDay          N `json:"pages_per_day" required:"false" minimum:"0" maximum:"1000000000000" doc:"Pages from midnight to midnight UTC; 0 for no bound."`
	MaxBytes             N `json:"max_bytes" required:"false" minimum:"0" maximum:"1000000000000000" doc:"Decoded bytes of the pages of one job; 0 for no bound."`
	MaxKeptBytes         N `json:"max_kept_bytes" required:"false" minimum:"0" maximum:"1000000000000" doc:"Bytes that the content of the pages of one job may take in the store; 0 for no bound."`
	MaxItems             N `json:"max_items" required:"false" minimum:"0" maximum:"100000000" doc:"Items of one collection; 0 for no bound."`
	SubmissionsPerSecond N `json:"submissions_per_second" required:"false" minimum:"0" maximum:"1000000" doc:"Submissions in a second, replays included; 0 for no bound."`
}

// quota is a whole one.
type quota numbersOf[int64]

// quotaChange has those numbers that are to become others, and nil for the rest.
type quotaChange numbersOf[*int64]

// numbers are those of a quota or of a change of one that are given, each with its field.
func numbers[Q quota | quotaChange](q *Q) iter.Seq2[reflect.StructField, int64] {
	return func(yield func(reflect.StructField, int64) bool) {
		v := reflect.ValueOf(q).Elem()
		for i := range v.NumField() {
			if n := reflect.Indirect(v.Field(i)); n.IsValid() && !yield(v.Type().Field(i), n.Int()) {
				return
			}
		}
	}
}

const (
	aboutSources = "What the tenant may crawl, within what the service allows, as https://docs.example.org/3/, " +
		"docs.example.org:8080 or *.example.org: at most 100 entries of at most 512 bytes. " +
		"[\"*\"] is all that the service allows, the empty list nothing."
	aboutSuspended = "Refuses every call of the tenant. Its jobs that were accepted go on."
	aboutNewOnes   = " Without it all that the service allows."
	aboutOldOnes   = " Not given, or null: stays as it is."
)

// newTenant is the body of POST /v1/admin/tenants.
type newTenant struct {
	Name      string   `json:"name" minLength:"1" maxLength:"63" pattern:"^[a-z0-9][a-z0-9_-]*$" doc:"Names the tenant: 1 to 63 characters of a-z, 0-9, - and _, the first a letter or digit. A tenant of TRAWL_API_KEYS or of a gateway is given bounds by its name."`
	Sources   []string `json:"sources,omitempty" maxItems:"100"`
	Quota     quota    `json:"quota,omitzero" doc:"Bounds of its own, within those of the service."`
	Suspended bool     `json:"suspended,omitempty" default:"false"`
}

// tenantChange is the body of PATCH /v1/admin/tenants/{tenant}. What is nil stays as it is.
type tenantChange struct {
	Sources   []string    `json:"sources,omitempty" maxItems:"100"`
	Quota     quotaChange `json:"quota,omitzero" doc:"Bounds of its own, within those of the service. Each that is not given, or null, stays as it is."`
	Suspended *bool       `json:"suspended" required:"false"`
}

// nothing reports whether there is nothing to change.
func (c *tenantChange) nothing() bool { return reflect.ValueOf(*c).IsZero() }

// of returns what t becomes.
func (c *tenantChange) of(t crawl.Tenant) crawl.Tenant {
	if c.Sources != nil {
		t.Sources = c.Sources
	}
	to := reflect.ValueOf(&t.Quota).Elem()
	for field, n := range numbers(&c.Quota) {
		to.FieldByName(field.Name).SetInt(n)
	}
	if c.Suspended != nil {
		t.Suspended = *c.Suspended
	}
	return t
}

// told says for the log what is changed, to which values; of the sources how many there are.
func (c *tenantChange) told() slog.Attr {
	var fields, bounds []slog.Attr
	if c.Sources != nil {
		fields = append(fields, slog.Int("sources", len(c.Sources)))
	}
	for field, n := range numbers(&c.Quota) {
		bounds = append(bounds, slog.Int64(jsonName(field), n))
	}
	if len(bounds) > 0 {
		fields = append(fields, slog.GroupAttrs("quota", bounds...))
	}
	if c.Suspended != nil {
		fields = append(fields, slog.Bool("suspended", *c.Suspended))
	}
	return slog.GroupAttrs("changed", fields...)
}

// tenantRecord is a tenant as the admin API shows it.
type tenantRecord struct {
	Name             string   `json:"name"`
	Sources          []string `json:"sources" doc:"What it may crawl of what the service allows, in canonical spelling; null for all of that."`
	EffectiveSources []string `json:"effective_sources" nullable:"false" doc:"The sources that hold: what both its own and the service's allow. One of its own that is not in TRAWL_ALLOWED_SOURCES is not here."`
	Quota            quota    `json:"quota" doc:"Its own bounds; 0 for none."`
	Effective        quota    `json:"effective" doc:"The bounds that hold: of its own and the service's the smaller."`
	Suspended        bool     `json:"suspended"`
	CreatedAt        string   `json:"created_at" format:"date-time"`
	UpdatedAt        string   `json:"updated_at" format:"date-time"`
}

// tenantPage is one page of tenants.
type tenantPage page[tenantRecord]

// describeBounds puts in what the tags of two types would have to say twice; absent says what
// a field that is not given means.
func describeBounds(s *huma.Schema, absent string) *huma.Schema {
	s.Properties["sources"].Description, s.Properties["suspended"].Description = aboutSources+absent, aboutSuspended
	s.AdditionalProperties = false
	return s
}

// TransformSchema completes the schema.
func (newTenant) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	return describeBounds(s, aboutNewOnes)
}

// TransformSchema completes the schema.
func (tenantChange) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	describeBounds(s, aboutOldOnes)
	s.Properties["suspended"].Description += aboutOldOnes
	return s
}

func init() {
	for _, t := range []reflect.Type{
		reflect.TypeFor[newTenant](), reflect.TypeFor[tenantChange](),
		reflect.TypeFor[newAPIKey](), reflect.TypeFor[rotation](),
	} {
		shapes[t] = newShape(t)
	}
}

var (
	tenantExamples = map[string]*huma.Example{
		"plain": {Summary: "With the bounds of the service", Value: map[string]any{"name": "docs-team"}},
		"narrow": {Summary: "With bounds of its own", Value: map[string]any{
			"name": "trial", "sources": []string{"https://docs.example.org/3/", "*.example.com"},
			"quota": map[string]any{"max_running": 2, "max_pages": 1000, "pages_per_day": 10000},
		}},
	}
	changeExamples = map[string]*huma.Example{
		"suspend": {Summary: "Suspended, and nothing else", Value: map[string]any{"suspended": true}},
		"quota":   {Summary: "One bound", Value: map[string]any{"quota": map[string]any{"max_running": 2}}},
		"sources": {Summary: "All that the service allows", Value: map[string]any{"sources": []string{"*"}}},
	}
)

func (s *Server) recordOf(t *crawl.Tenant) tenantRecord {
	return tenantRecord{
		Name: t.Name, Sources: t.Sources, EffectiveSources: s.effectiveSources(t),
		Quota: quota(t.Quota), Effective: quota(t.Quota.Within(s.o.Quota)),
		Suspended: t.Suspended, CreatedAt: timestamp(t.CreatedAt), UpdatedAt: timestamp(t.UpdatedAt),
	}
}

// effectiveSources are what the calls of a tenant are held to: none when what is kept cannot
// be read, for then its calls fail.
func (s *Server) effectiveSources(t *crawl.Tenant) []string {
	acct, err := s.accounts.of(t)
	if err != nil {
		return []string{}
	}
	return acct.sources.Strings()
}

// bodyFaults collects what a decoded body says wrong.
type bodyFaults []crawl.FieldFault

func (f *bodyFaults) add(field, rule, format string, args ...any) {
	*f = append(*f, crawl.FieldFault{Field: field, Rule: rule, Message: fmt.Sprintf(format, args...)})
}

func (f bodyFaults) err() error {
	if len(f) == 0 {
		return nil
	}
	return &crawl.Fault{
		Code: crawl.CodeInvalid, Message: "The body breaks rules of the contract; errors names each field and its rule.",
		Fields: f,
	}
}

// sources reads a tenant's list; nil stays nil.
func (f *bodyFaults) sources(entries []string) []string {
	if entries == nil {
		return nil
	}
	if n := len(entries); n > maxTenantSources {
		f.add("sources", ruleMax, "Give at most %d sources, not %d.", maxTenantSources, n)
		return nil
	}
	out := make([]string, 0, len(entries))
	for i, entry := range entries {
		field := "sources[" + strconv.Itoa(i) + "]"
		if len(entry) > maxSourceBytes {
			f.add(field, ruleMax, "A source has at most %d bytes.", maxSourceBytes)
			continue
		}
		// A comma parts entries where such a list is one text.
		one, err := crawl.ParseSources(entry)
		switch canonical := one.Strings(); {
		case err != nil:
			f.add(field, "source", "%s.", sourceFault(err))
		case len(canonical) != 1 || strings.Contains(entry, ","):
			f.add(field, "source", "Give one source: https://host/path/, host, host:port, *.host or *.")
		case !slices.Contains(out, canonical[0]):
			out = append(out, canonical[0])
		}
	}
	return out
}

// sourceFault returns what is wrong with the one entry of a list, as the start of a sentence.
func sourceFault(err error) string {
	var f *crawl.Fault
	if errors.As(err, &f) && len(f.Fields) > 0 {
		return "This is no source: " + f.Fields[0].Message
	}
	return "This is no source"
}

// quota holds each number that is given to the bounds that the document says.
func (f *bodyFaults) quota(given iter.Seq2[reflect.StructField, int64]) {
	for of, n := range given {
		most, _ := strconv.ParseInt(of.Tag.Get("maximum"), 10, 64) // a test reads them all
		if n < 0 || n > most {
			f.add("quota."+jsonName(of), ruleRange, "Give a number from 0, for no bound of its own, to %d.", most)
		}
	}
}

// decodeBody reads the body of a request by the rules of a submission, and tells what is
// wrong with its form together with what check finds.
func decodeBody[T any](ctx context.Context, s *Server, x *exchange, check func(*T) error) error {
	return s.withBody(ctx, x, func(body []byte) error {
		var in T
		form := decodeStrict(body, &in)
		if form != nil && reflect.ValueOf(in).IsZero() {
			return form
		}
		return together(form, check(&in))
	})
}

type tenantOutput struct {
	Body tenantRecord
}

type createTenantInput struct{}

type createTenantOutput struct {
	Location string `header:"Location" doc:"Where the tenant is read."`
	Body     tenantRecord
}

func (s *Server) createTenant(
	ctx context.Context, x *exchange, _ *createTenantInput,
) (*createTenantOutput, error) {
	var t crawl.Tenant
	err := decodeBody(ctx, s, x, func(in *newTenant) error {
		var f bodyFaults
		switch {
		case in.Name == "":
			f.add("name", "required", "Name the tenant. %s", tenantRule)
		case !crawl.ValidTenant(in.Name):
			f.add("name", ruleFormat, "This cannot name a tenant. %s", tenantRule)
		}
		t = crawl.Tenant{
			Name: in.Name, Sources: f.sources(in.Sources), Quota: crawl.Quota(in.Quota), Suspended: in.Suspended,
		}
		f.quota(numbers(&in.Quota))
		return f.err()
	})
	if err != nil {
		return nil, err
	}
	kept, err := prompt(ctx, func(ctx context.Context) (crawl.Tenant, error) { return s.keepNew(ctx, x, t) })
	if err != nil {
		return nil, err
	}
	return &createTenantOutput{Location: pathTenants + "/" + t.Name, Body: s.recordOf(&kept)}, nil
}

// keepNew keeps a tenant that was not kept before. Its quota is put where its jobs are
// first: if one of the two steps fails, the tenant is not there and the same call can be
// made again. The look before it keeps a second creation from changing the quota of the
// first; when two run at the same time, the loser puts back what the winner keeps.
func (s *Server) keepNew(ctx context.Context, x *exchange, t crawl.Tenant) (crawl.Tenant, error) {
	switch _, err := s.o.Tenants.Tenant(ctx, t.Name); {
	case err == nil:
		return t, crawl.Faultf(crawl.CodeTenantExists,
			"Tenant %s is kept already. Change it with PATCH %s/%s.", t.Name, pathTenants, t.Name)
	case crawl.CodeOf(err) != crawl.CodeNotFound:
		return t, err
	}
	if err := s.setQuota(ctx, x, t.Name, t.Quota); err != nil {
		return t, err
	}
	kept, err := s.o.Tenants.CreateTenant(ctx, t)
	if crawl.CodeOf(err) == crawl.CodeTenantExists {
		if winner, lost := s.o.Tenants.Tenant(ctx, t.Name); lost == nil {
			_, _ = s.enforce(ctx, x, winner) // the answer is that the tenant exists, either way
		}
	}
	if err != nil {
		return t, err
	}
	s.logChange(ctx, x, "create-tenant", t.Name)
	return kept, nil
}

func (s *Server) setQuota(ctx context.Context, x *exchange, tenant string, q crawl.Quota) error {
	rings, err := s.o.Tenants.SetQuota(ctx, tenant, q)
	if err != nil {
		return err
	}
	s.ring(ctx, x, rings, "")
	return nil
}

// enforceTries bounds how often a quota is put in its place for one call: as often as other
// changes of the same tenant come in between.
const enforceTries = 8

// enforce puts the quota of a tenant where its jobs are, and looks whether it is still the
// one that is kept: of two changes at the same time the one that is kept last could else be
// put in place first, and the other would hold.
func (s *Server) enforce(ctx context.Context, x *exchange, t crawl.Tenant) (crawl.Tenant, error) {
	for range enforceTries {
		if err := s.setQuota(ctx, x, t.Name, t.Quota); err != nil {
			return t, err
		}
		kept, err := s.o.Tenants.Tenant(ctx, t.Name)
		if err != nil {
			return t, err
		}
		if kept.Quota == t.Quota {
			return kept, nil
		}
		t = kept
	}
	return t, crawl.Faultf(crawl.CodeUnavailable,
		"Others change this tenant all the time. Read it and try again shortly.")
}

// tenantInput names the tenant of a path.
type tenantInput struct {
	Tenant string `path:"tenant" doc:"Name of the tenant."`
}

// valid keeps what cannot be the name of a tenant out of key names.
func (in *tenantInput) valid() error {
	if !crawl.ValidTenant(in.Tenant) {
		return crawl.Faultf(crawl.CodeNotFound, "no such tenant")
	}
	return nil
}

func (s *Server) tenant(ctx context.Context, _ *exchange, in *tenantInput) (*tenantOutput, error) {
	if err := in.valid(); err != nil {
		return nil, err
	}
	t, err := prompt(ctx, func(ctx context.Context) (crawl.Tenant, error) { return s.o.Tenants.Tenant(ctx, in.Tenant) })
	if err != nil {
		return nil, err
	}
	return &tenantOutput{Body: s.recordOf(&t)}, nil
}

func (s *Server) changeTenant(ctx context.Context, x *exchange, in *tenantInput) (*tenantOutput, error) {
	if err := in.valid(); err != nil {
		return nil, err
	}
	var change tenantChange
	err := decodeBody(ctx, s, x, func(b *tenantChange) error {
		var f bodyFaults
		b.Sources = f.sources(b.Sources)
		f.quota(numbers(&b.Quota))
		change = *b
		return f.err()
	})
	if err != nil {
		return nil, err
	}
	kept, err := prompt(ctx, func(ctx context.Context) (crawl.Tenant, error) {
		return s.keepChange(ctx, x, in.Tenant, &change)
	})
	if err != nil {
		return nil, err
	}
	return &tenantOutput{Body: s.recordOf(&kept)}, nil
}

// changeTries bounds how often a change is made for one call: as often as others of the same
// tenant come in between.
const changeTries = 16

// keepChange changes what is kept, and then puts the quota in its place: when that fails the
// same call again puts it there. What another call changes at the same time holds as well: the
// store refuses what was made of an old record, and it is made anew of the one that is there.
func (s *Server) keepChange(ctx context.Context, x *exchange, name string, c *tenantChange) (crawl.Tenant, error) {
	for range changeTries {
		t, err := s.o.Tenants.Tenant(ctx, name)
		if err != nil || c.nothing() {
			return t, err
		}
		changed, err := s.o.Tenants.ChangeTenant(ctx, c.of(t))
		switch {
		case crawl.CodeOf(err) == crawl.CodeWrongState:
			continue
		case err != nil:
			return t, err
		}
		s.logChange(ctx, x, "change-tenant", name, c.told())
		return s.enforce(ctx, x, changed)
	}
	return crawl.Tenant{}, crawl.Faultf(crawl.CodeWrongState,
		"Others change this tenant at the same time, and nothing of this call was kept. Try again shortly.")
}

type listTenantsInput struct {
	Limit  listLimit `query:"limit"`
	Cursor string    `query:"cursor" doc:"The next_cursor of the page before."`
}

type listTenantsOutput struct {
	Body tenantPage
}

func (s *Server) listTenants(ctx context.Context, x *exchange, in *listTenantsInput) (*listTenantsOutput, error) {
	p := params{faults: x.query}
	limit, after := p.limit(string(in.Limit), listLimitDefault, listLimitMax), p.tenantCursor(in.Cursor)
	if err := p.err(); err != nil {
		return nil, err
	}
	found, err := prompt(ctx, func(ctx context.Context) (store.TenantPage, error) {
		return s.o.Tenants.Tenants(ctx, after, limit)
	})
	if err != nil {
		return nil, err
	}
	out := &listTenantsOutput{Body: tenantPage{Items: make([]tenantRecord, len(found.Tenants)), HasMore: found.More}}
	for i := range found.Tenants {
		out.Body.Items[i] = s.recordOf(&found.Tenants[i])
	}
	if found.More {
		next := cursorEncoding.EncodeToString(append([]byte{cursorTenants}, found.Next...))
		out.Body.NextCursor = &next
	}
	return out, nil
}

// cursorTenants is the kind of cursor of the list of tenants: one with a name behind it.
const cursorTenants = 't'

func (p *params) tenantCursor(s string) string {
	if s == "" {
		return ""
	}
	b, err := cursorEncoding.DecodeString(s)
	// The decoder skips line breaks, so that a name could have several cursors: length again.
	if err != nil || len(b) == 0 || b[0] != cursorTenants || len(s) != cursorEncoding.EncodedLen(len(b)) ||
		!crawl.ValidTenant(string(b[1:])) {
		p.badCursor = true
		p.add("cursor", ruleFormat, "This is not a next_cursor of this list. Begin again without one.")
		return ""
	}
	return string(b[1:])
}

// logChange tells who audits the service what the holder of the admin key changed; more
// names the keys that it is about, or the values that are new.
func (s *Server) logChange(ctx context.Context, x *exchange, action, tenant string, more ...slog.Attr) {
	s.log.LogAttrs(ctx, s.auditLevel(), "admin change", append([]slog.Attr{
		slog.String("by", "admin"), slog.String("action", action), slog.String("tenant", tenant),
		slog.String("request_id", x.id),
	}, more...)...)
}
