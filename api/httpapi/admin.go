package httpapi

import (
	"context"
	"errors"
	"fmt"
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
	adminRoute(s, adminOperation("change-tenant", http.MethodPut, pathTenant,
		"Replace the bounds of a tenant; what is left out has none of its own then", http.StatusOK,
		append(body, crawl.CodeNotFound)...), s.changeTenant)
	s.takes(pathTenants, http.MethodPost, reflect.TypeFor[newTenant](), tenantExamples)
	s.takes(pathTenant, http.MethodPut, reflect.TypeFor[tenantBounds](), boundsExamples)
	s.keyRoutes(body)
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
	op := item.Post
	if method == http.MethodPut {
		op = item.Put
	}
	op.RequestBody = requestBody(s.api.OpenAPI().Components.Schemas, t, examples)
}

// quota is crawl.Quota with what the document says of it, and with its bounds: those that
// the settings of the service have, and 0.
type quota struct {
	MaxQueued            int64 `json:"max_queued" required:"false" minimum:"0" maximum:"1000000" doc:"Jobs that may wait for their turn; 0 for no bound."`
	MaxRunning           int64 `json:"max_running" required:"false" minimum:"0" maximum:"10000" doc:"Jobs that run at once, the others wait; 0 for no bound."`
	MaxPages             int64 `json:"max_pages" required:"false" minimum:"0" maximum:"1000000" doc:"URLs that one job may admit; 0 for no bound."`
	PagesPerDay          int64 `json:"pages_per_day" required:"false" minimum:"0" maximum:"1000000000000" doc:"Pages from midnight to midnight UTC; 0 for no bound."`
	MaxBytes             int64 `json:"max_bytes" required:"false" minimum:"0" maximum:"1000000000000000" doc:"Decoded bytes of the pages of one job; 0 for no bound."`
	SubmissionsPerSecond int64 `json:"submissions_per_second" required:"false" minimum:"0" maximum:"1000000" doc:"Submissions in a second, replays included; 0 for no bound."`
}

const (
	aboutSources = "What the tenant may crawl, within what the service allows, as https://docs.example.org/3/, " +
		"docs.example.org:8080 or *.example.org: at most 100 entries of at most 512 bytes. " +
		"Without it all that the service allows; the empty list is nothing."
	aboutSuspended = "Refuses every call of the tenant. Its jobs that were accepted go on."
)

// newTenant is the body of POST /v1/admin/tenants.
type newTenant struct {
	Name      string   `json:"name" minLength:"1" maxLength:"63" pattern:"^[a-z0-9][a-z0-9_-]*$" doc:"Names the tenant: 1 to 63 characters of a-z, 0-9, - and _, the first a letter or digit. A tenant of TRAWL_API_KEYS or of a gateway is given bounds by its name."`
	Sources   []string `json:"sources,omitempty" maxItems:"100"`
	Quota     quota    `json:"quota,omitzero" doc:"Bounds of its own, within those of the service."`
	Suspended bool     `json:"suspended,omitempty" default:"false"`
}

// tenantBounds is the body of PUT /v1/admin/tenants/{tenant}.
type tenantBounds struct {
	Sources   []string `json:"sources,omitempty" maxItems:"100"`
	Quota     quota    `json:"quota,omitzero" doc:"Bounds of its own, within those of the service."`
	Suspended bool     `json:"suspended,omitempty" default:"false"`
}

// tenantRecord is a tenant as the admin API shows it.
type tenantRecord struct {
	Name      string   `json:"name"`
	Sources   []string `json:"sources" doc:"What it may crawl of what the service allows, in canonical spelling; null for all of that."`
	Quota     quota    `json:"quota" doc:"Its own bounds; 0 for none."`
	Effective quota    `json:"effective" doc:"The bounds that hold: of its own and the service's the smaller."`
	Suspended bool     `json:"suspended"`
	CreatedAt string   `json:"created_at" format:"date-time"`
	UpdatedAt string   `json:"updated_at" format:"date-time"`
}

// tenantPage is one page of tenants.
type tenantPage page[tenantRecord]

// describeBounds puts in what the tags of two types would have to say twice.
func describeBounds(s *huma.Schema) *huma.Schema {
	s.Properties["sources"].Description, s.Properties["suspended"].Description = aboutSources, aboutSuspended
	s.AdditionalProperties = false
	return s
}

// TransformSchema completes the schema.
func (newTenant) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	return describeBounds(s)
}

// TransformSchema completes the schema.
func (tenantBounds) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	return describeBounds(s)
}

func init() {
	for _, t := range []reflect.Type{
		reflect.TypeFor[newTenant](), reflect.TypeFor[tenantBounds](),
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
	boundsExamples = map[string]*huma.Example{
		"suspend": {Summary: "Suspended, with bounds", Value: map[string]any{
			"quota": map[string]any{"max_running": 2}, "suspended": true,
		}},
	}
)

func (s *Server) recordOf(t *crawl.Tenant) tenantRecord {
	return tenantRecord{
		Name: t.Name, Sources: t.Sources, Quota: quota(t.Quota), Effective: quota(t.Quota.Within(s.o.Quota)),
		Suspended: t.Suspended, CreatedAt: timestamp(t.CreatedAt), UpdatedAt: timestamp(t.UpdatedAt),
	}
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

// quota holds each number to the bounds that the document says.
func (f *bodyFaults) quota(q *quota) crawl.Quota {
	v := reflect.ValueOf(q).Elem()
	for i := range v.NumField() {
		of := v.Type().Field(i)
		most, _ := strconv.ParseInt(of.Tag.Get("maximum"), 10, 64) // a test reads them all
		if n := v.Field(i).Int(); n < 0 || n > most {
			f.add("quota."+jsonName(of), ruleRange, "Give a number from 0, for no bound of its own, to %d.", most)
		}
	}
	return crawl.Quota(*q)
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
		t = crawl.Tenant{Name: in.Name, Sources: f.sources(in.Sources), Quota: f.quota(&in.Quota), Suspended: in.Suspended}
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
			"Tenant %s is kept already. Change it with PUT %s/%s.", t.Name, pathTenants, t.Name)
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

// changeTenant replaces what is kept, and then puts the quota in its place: when that fails
// the same call again puts it there.
func (s *Server) changeTenant(ctx context.Context, x *exchange, in *tenantInput) (*tenantOutput, error) {
	if err := in.valid(); err != nil {
		return nil, err
	}
	t := crawl.Tenant{Name: in.Tenant}
	err := decodeBody(ctx, s, x, func(b *tenantBounds) error {
		var f bodyFaults
		t.Sources, t.Quota, t.Suspended = f.sources(b.Sources), f.quota(&b.Quota), b.Suspended
		return f.err()
	})
	if err != nil {
		return nil, err
	}
	kept, err := prompt(ctx, func(ctx context.Context) (crawl.Tenant, error) {
		changed, err := s.o.Tenants.ChangeTenant(ctx, t)
		if err != nil {
			return t, err
		}
		s.logChange(ctx, x, "change-tenant", t.Name)
		return s.enforce(ctx, x, changed)
	})
	if err != nil {
		return nil, err
	}
	return &tenantOutput{Body: s.recordOf(&kept)}, nil
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
// names the keys that it is about.
func (s *Server) logChange(ctx context.Context, x *exchange, action, tenant string, more ...slog.Attr) {
	s.log.LogAttrs(ctx, slog.LevelInfo, "admin change", append([]slog.Attr{
		slog.String("by", "admin"), slog.String("action", action), slog.String("tenant", tenant),
		slog.String("request_id", x.id),
	}, more...)...)
}
