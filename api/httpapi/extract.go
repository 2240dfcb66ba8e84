package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sync/semaphore"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/extract"
	"example.com/trawl/pkg/fields"
)

// extractRoom is how long an extraction waits for its turn: long enough for those before it
// on their way through, short enough that a client does not give up first.
const extractRoom = time.Second

// extractRequest is the body of POST /v1/extract.
type extractRequest struct {
	HTML    *string `json:"html,omitempty" doc:"The page itself. Nothing is fetched or stored. One of html and url is required, and they exclude each other."`
	URL     string  `json:"url,omitempty" maxLength:"8192" doc:"Where the page is: it is fetched by a job of this one page, under the rules and quotas of any other."`
	BaseURL string  `json:"base_url,omitempty" maxLength:"8192" doc:"What links of html are relative to. Without it only absolute links are URLs. With html only."`

	Fields      crawl.Fields `json:"fields,omitempty" maxProperties:"100" doc:"Values to take out of the page, as in a submission. A required one without a value is no error here: missing names it."`
	Items       *crawl.Items `json:"items,omitempty" doc:"Several records of the page, as in a submission."`
	Formats     []string     `json:"formats,omitempty" maxItems:"5" doc:"What of the content is answered, as in a submission: any of markdown, text, html, links and metadata. Default none."`
	MainContent bool         `json:"main_content,omitempty" default:"false" doc:"Takes markdown and text of the main content alone, where that can be told. Default false."`

	Headers       crawl.Headers `json:"headers,omitempty" maxProperties:"20" doc:"Request headers, as in a submission. With url only."`
	UserAgent     string        `json:"user_agent,omitempty" maxLength:"256" doc:"What the request calls itself, as in a submission. With url only."`
	RespectRobots *bool         `json:"respect_robots,omitempty" doc:"false fetches what a robots.txt asks not to. Default true. With url only."`
}

func init() {
	shapes[reflect.TypeFor[extractRequest]()] = newShape(reflect.TypeFor[extractRequest]())
}

// TransformSchema refuses unknown names as the decoder does.
func (extractRequest) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.AdditionalProperties = false
	return s
}

// extractExamples are extractions to begin with.
var extractExamples = map[string]*huma.Example{
	"html": {Summary: "A page at hand", Value: map[string]any{
		"html": `<h1>A chair</h1><p class="price">1.234,50 €</p><a href="/next">Next</a>`, "base_url": "https://example.com/chairs/1",
		"fields": map[string]any{
			"title": map[string]any{"selector": "h1", "required": true},
			"price": map[string]any{"selector": ".price", "type": "number", "locale": "de"},
			"next":  map[string]any{"selector": "a", "attr": "href"},
		},
	}},
	"url": {Summary: "A page to fetch", Value: map[string]any{
		"url": "https://example.com/", "formats": []string{"markdown"}, "main_content": true,
	}},
}

// exampleExtraction is the answer to the first of them.
var exampleExtraction = extraction{
	SourceURL: unlessZero("https://example.com/chairs/1"), URL: unlessZero("https://example.com/chairs/1"),
	Fields: values(`{"next":"https://example.com/next","price":1234.5,"title":"A chair"}`),
	Items:  []values{}, Missing: []string{}, Notes: []note{},
}

// extraction is what was taken out of a page.
type extraction struct {
	SourceURL *string   `json:"source_url" doc:"The URL as it was given: url, or base_url; null without."`
	URL       *string   `json:"url" doc:"Where it ended, after redirects, or base_url; null without."`
	Title     string    `json:"title"`
	Fields    values    `json:"fields" doc:"The values by name, in the order of the request; null when none were asked for."`
	Items     []values  `json:"items" nullable:"false" doc:"The values of each item, in the order of the page."`
	Found     int       `json:"items_found" doc:"Elements that items.selector matched: more than items has if some lack a required field, or if there are too many. notes say so."`
	Missing   []string  `json:"missing" nullable:"false" doc:"Required fields that the page has no value for, or that each of its items lacks, as fields.title. A crawl would fail the page for one."`
	Notes     []note    `json:"notes" nullable:"false" doc:"What is not whole, or not as it was asked for."`
	Markdown  *string   `json:"markdown" doc:"Null unless formats has it, as the other forms of the content."`
	Text      *string   `json:"text"`
	HTML      *string   `json:"html" doc:"As received, decoded. It is not made safe to show."`
	Links     []link    `json:"links" nullable:"true"`
	Metadata  *metadata `json:"metadata"`

	JobID *string    `json:"job_id" doc:"Of url: the job that fetched the page. It is kept for 10 minutes."`
	Error *pageError `json:"error" doc:"Of url: why the page gave nothing; null when it did, or is still under way (202)."`
}

// TransformSchema says that what is an object can be null.
func (extraction) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	orNull(s, "metadata", "error")
	return s
}

// orNull lets properties that are objects be null, too: huma has no such pointers.
func orNull(s *huma.Schema, names ...string) {
	for _, name := range names {
		p := s.Properties[name]
		s.Properties[name] = &huma.Schema{
			Description: p.Description, OneOf: []*huma.Schema{{Ref: p.Ref}, {Type: "null"}},
		}
	}
}

// pageError is why a page gave nothing.
type pageError struct {
	ErrorType string `json:"error_type" example:"http_404" doc:"As in the errors of a job; of a page that was not taken the reason, as robots or noindex."`
	Status    *int   `json:"status" doc:"The HTTP status; null without an answer."`
	Message   string `json:"message" doc:"For a person."`
}

type extractInput struct{}

type extractOutput struct {
	Status   int
	Location string `header:"Location" doc:"Of 202: where the job is read."`
	Body     extraction
}

// extractRoute adds the route of extractions.
func (s *Server) extractRoute() {
	// A tree takes many times its page, and a core as long as the steps last: those that would
	// only wait for a core wait here. One tenant leaves some to the others.
	cores := int64(runtime.GOMAXPROCS(0))
	s.extracts, s.extractShares = semaphore.NewWeighted(cores), newShares((cores+1)/2)
	op := operation("extract", http.MethodPost, "/v1/extract",
		"Take fields and content out of one page, given as HTML or as a URL; waits up to 30 s for a URL", http.StatusOK,
		crawl.CodeMalformed, crawl.CodeBodyTooLarge, codeUnsupportedMediaType, crawl.CodeSourceNotAllowed,
		crawl.CodeQuotaExceeded, crawl.CodeRateLimited, crawl.CodeOverloaded)
	op.Tags = []string{"extract"}
	op.Responses["202"] = &huma.Response{
		Description: "The page is still under way: job_id names the job, and nothing else is known yet.",
		Headers:     map[string]*huma.Param{"Location": {Description: "Where the job is read.", Schema: &huma.Schema{Type: huma.TypeString}}},
		Content: map[string]*huma.MediaType{
			"application/json": {Schema: s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[extraction](), true, "")},
		},
	}
	register(s, op, s.extract)
}

func (s *Server) extract(ctx context.Context, x *exchange, _ *extractInput) (*extractOutput, error) {
	var e *extractor
	var found *extraction
	err := s.withBody(ctx, x, func(body []byte) error {
		in := &extractRequest{}
		wrong := decodeStrict(body, in)
		if wrong != nil && reflect.ValueOf(*in).IsZero() {
			return wrong
		}
		var err error
		e, err = extractorOf(x.account(), in)
		if err = together(wrong, err); err != nil || in.HTML == nil {
			return err
		}
		// Here, since the page has its room only as long as the body has.
		found, err = s.extractHTML(ctx, x, e)
		return err
	})
	if err != nil {
		return nil, err
	}
	if found != nil {
		return &extractOutput{Status: http.StatusOK, Body: *found}, nil
	}
	return s.extractURL(ctx, x, e)
}

// extractor is a request that was checked.
type extractor struct {
	in      *extractRequest
	base    crawl.URL
	sub     submission // the job that would fetch the page
	plan    crawl.Plan
	inputs  []crawl.Input
	program *fields.Program // of html; nil when no fields are asked for

	// Of url: the paths of what the caller requires, and the job does not.
	required, requiredOfItems []string
}

// somewhere stands for the place of a page that was given itself: a plan has an input.
const somewhere = "https://page.invalid/"

// extractorOf checks a request of the account.
func extractorOf(acct *account, in *extractRequest) (*extractor, error) {
	e := &extractor{in: in}
	faults := e.checkPage()
	sources, limits := acct.sources, acct.limits
	e.sub = e.submission(limits)
	if in.HTML != nil {
		e.sub.URLs, e.sub.Headers, e.sub.UserAgent, e.sub.RespectRobots = []string{somewhere}, nil, "", nil
		sources = anySource
	}
	var err error
	if in.HTML != nil || in.URL != "" {
		sp := crawl.Spec(e.sub)
		e.plan, e.inputs, err = sp.Plan(limits, sources)
		err = aboutURL(err)
	}
	// As they were given: what is required may not have a default.
	program, wrong := fields.Compile(fields.Spec{Fields: in.Fields, Items: in.Items})
	faults = append(faults, bounded(wrong)...)
	if len(in.Fields) > 0 || in.Items != nil {
		e.program = program
	}
	if len(faults) > 0 {
		return nil, together(&crawl.Fault{
			Code: crawl.CodeInvalid, Fields: faults,
			Message: "The body breaks rules of the contract; errors names each field and its rule.",
		}, err)
	}
	return e, err
}

// checkPage checks what says where the page is.
func (e *extractor) checkPage() (faults []crawl.FieldFault) {
	in := e.in
	add := func(field, rule, message string) {
		faults = append(faults, crawl.FieldFault{Field: field, Rule: rule, Message: message})
	}
	switch {
	case in.HTML == nil && in.URL == "":
		add("url", "required", "Give the page as html, or where it is as url.")
	case in.HTML != nil && in.URL != "":
		add("url", "exclusive", "Give html or url, not both.")
	}
	if in.BaseURL != "" {
		var err error
		switch e.base, err = crawl.ParseURL(in.BaseURL); {
		case in.HTML == nil:
			add("base_url", "exclusive", "A page that is fetched has a URL of its own. Give base_url with html only.")
		case err != nil:
			add("base_url", "url", "This is no URL that links can be relative to: "+messageOf(err)+".")
		}
	}
	if in.HTML == nil {
		return faults
	}
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"headers", len(in.Headers) > 0}, {"user_agent", in.UserAgent != ""}, {"respect_robots", in.RespectRobots != nil},
	} {
		if f.given {
			add(f.name, "exclusive", "Nothing is fetched for html. Give this with url only.")
		}
	}
	return faults
}

// aboutURL names the one input of a plan as the caller of an extraction does.
func aboutURL(err error) error {
	var f *crawl.Fault
	if !errors.As(err, &f) {
		return err
	}
	renamed := *f
	renamed.Fields = slices.Clone(f.Fields)
	for i := range renamed.Fields {
		at := &renamed.Fields[i].Field
		if *at == "urls" || strings.HasPrefix(*at, "urls[") {
			*at = "url"
		}
	}
	return &renamed
}

// extractHTML takes out of a page what is asked for.
func (s *Server) extractHTML(ctx context.Context, x *exchange, e *extractor) (*extraction, error) {
	leave, err := s.enterExtract(ctx, x)
	if err != nil {
		return nil, err
	}
	defer leave()
	doc, err := extract.Parse([]byte(strings.TrimPrefix(*e.in.HTML, "\ufeff")), e.base)
	if err != nil {
		return nil, tooComplex(err)
	}
	out := &extraction{Items: []values{}, Missing: []string{}}
	if !e.base.IsZero() {
		at := e.base.String()
		out.SourceURL, out.URL = &at, &at
	}
	var notes []crawl.Note
	if e.program != nil {
		if notes, err = out.run(e.program, doc, e.base); err != nil {
			return nil, err
		}
	}
	out.Notes = notesOf(append(notes, out.takeContent(doc, e)...))
	return out, nil
}

// takeContent takes the title and the formats out of a page.
func (out *extraction) takeContent(doc *extract.Document, e *extractor) (notes []crawl.Note) {
	// The metadata have the title, too.
	formats := e.plan.Formats
	asked := slices.Contains(formats, crawl.FormatMetadata)
	if !asked {
		formats = append(slices.Clone(formats), crawl.FormatMetadata)
	}
	content, all := doc.Content(extract.Wants{Formats: formats, MainContent: e.plan.MainContent})
	for _, n := range all {
		if asked || n.About != crawl.FormatMetadata {
			notes = append(notes, n)
		}
	}
	if content == nil {
		content = &crawl.Content{}
	}
	if m := content.Metadata; m != nil {
		out.Title = m.Title
	}
	if !asked {
		content.Metadata = nil
	}
	if slices.Contains(formats, crawl.FormatHTML) {
		content.HTML = e.in.HTML
	}
	out.keep(content)
	return notes
}

// tooComplex says of the input what [extract.Parse] says of a page.
func tooComplex(err error) error {
	var f *crawl.Fault
	if !errors.As(err, &f) {
		return err
	}
	return &crawl.Fault{
		Code: crawl.CodeInvalid, Message: "The page cannot be worked on.", Err: err,
		Fields: []crawl.FieldFault{{Field: "html", Rule: string(f.Code), Message: f.Message}},
	}
}

// enterExtract waits for the turn of an extraction.
func (s *Server) enterExtract(ctx context.Context, x *exchange) (leave func(), err error) {
	wait, stop := context.WithTimeout(ctx, extractRoom)
	defer stop()
	own, err := s.extractShares.acquire(wait, x.tenant, 1)
	if err == nil {
		if err = s.extracts.Acquire(wait, 1); err != nil {
			own()
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &crawl.Fault{
			Code: crawl.CodeOverloaded, Err: err, Message: "The service works on as many pages as it can. Try again shortly.",
		}
	}
	return func() { s.extracts.Release(1); own() }, nil
}

// run takes the fields out of a page.
func (out *extraction) run(program *fields.Program, doc *extract.Document, base crawl.URL) ([]crawl.Note, error) {
	found, err := program.Run(doc.Root(), base)
	var lacks *crawl.Fault
	if errors.As(err, &lacks) && lacks.Code == crawl.CodeMissingField {
		for _, f := range lacks.Fields {
			out.Missing = append(out.Missing, f.Field)
		}
	} else if err != nil {
		return nil, err
	}
	if out.Found = found.ItemsFound; found.Record != nil {
		if out.Fields, err = json.Marshal(found.Record); err != nil {
			return nil, err
		}
	}
	for _, item := range found.Items {
		fields, err := json.Marshal(item)
		if err != nil {
			return nil, err
		}
		out.Items = append(out.Items, fields)
	}
	return found.Notes(), nil
}

func (out *extraction) keep(c *crawl.Content) {
	out.Markdown, out.Text, out.HTML = c.Markdown, c.Text, c.HTML
	out.Links, out.Metadata = linksOf(c.Links), (*metadata)(c.Metadata)
}
