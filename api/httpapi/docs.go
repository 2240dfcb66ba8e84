package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gin-gonic/gin"
	"github.com/swaggest/swgui/v5/static"
	"github.com/swaggest/swgui/v5emb"

	"example.com/trawl/pkg/crawl"
)

const (
	openAPIPath   = "/openapi.json"
	docsPath      = "/docs"
	problemSchema = "Problem"
)

// apiConfig returns huma's settings without the routes that it would add itself:
// its document is made at the first request, without a lock, and its pages load
// scripts from elsewhere.
func apiConfig() huma.Config {
	config := huma.DefaultConfig("Trawl", "1")
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "", "", ""
	config.CreateHooks = nil // adds $schema to every answer
	config.Info.Description = "Crawl jobs: submit, follow, read. Errors are RFC 9457 problems with a stable code."
	config.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", schemaName)
	describeSpecs(config.Components.Schemas)
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"bearer": {Type: "http", Scheme: "bearer", Description: "The API key, as a bearer token."},
		"apiKey": {Type: "apiKey", In: "header", Name: "X-API-Key"},
	}
	return config
}

// schemaName names the schemas of the document after the types, which are not
// exported, with a capital.
func schemaName(t reflect.Type, hint string) string {
	switch t { // which would be named after the generic type
	case reflect.TypeFor[page[status]]():
		return "JobPage"
	case reflect.TypeFor[retried]():
		return "RetriedJob"
	case reflect.TypeFor[page[record]]():
		return "RecordPage"
	case reflect.TypeFor[page[failure]]():
		return "FailurePage"
	case reflect.TypeFor[page[knownURL]]():
		return "URLPage"
	case reflect.TypeFor[page[collection]]():
		return "CollectionPage"
	}
	name := huma.DefaultSchemaNamer(t, hint)
	return strings.ToUpper(name[:1]) + name[1:]
}

// document completes what huma gathered from the handlers' types and returns it.
func (s *Server) document() ([]byte, error) {
	api := s.api.OpenAPI()
	schemas := api.Components.Schemas
	schemas.Schema(reflect.TypeFor[problem](), true, problemSchema)
	// huma registers the schemas of its own errors, which no route here answers.
	delete(schemas.Map(), "ErrorModel")
	delete(schemas.Map(), "ErrorDetail")

	// The body is read by the strict decoder, so huma is told of it only here:
	// what it knew before the routes were registered it would decode itself.
	api.Paths["/v1/jobs"].Post.RequestBody = requestBody(schemas, reflect.TypeFor[submission](), examples)
	api.Paths["/v1/jobs/preview"].Post.RequestBody = requestBody(schemas, reflect.TypeFor[previewRequest](), previewExamples)
	api.Paths["/v1/extract"].Post.RequestBody = requestBody(schemas, reflect.TypeFor[extractRequest](), extractExamples)
	describeCollections(api, schemas)
	api.Webhooks = webhookDocs(schemas)
	schemas.SchemaFromRef("#/components/schemas/Submission").Properties["delay"].Default = crawl.Duration(s.o.Limits.HostDelay).String()
	api.Paths["/v1/jobs/{id}/result"].Get.Responses["200"].Content = map[string]*huma.MediaType{
		"application/json": {Schema: &huma.Schema{
			Type: huma.TypeObject, Description: "The status, with records and errors as arrays.",
		}},
		"application/x-ndjson": {Schema: schemas.Schema(reflect.TypeFor[record](), true, "")},
		"text/csv":             {Schema: &huma.Schema{Type: huma.TypeString, Description: "The records, below a header row."}},
	}
	for _, schema := range schemas.Map() {
		for _, p := range schema.Properties {
			if p.Nullable && len(p.Enum) > 0 {
				p.Enum = append(p.Enum, nil) // a type that allows null does not, with an enum that has it not
			}
		}
	}
	return json.Marshal(api)
}

func requestBody(schemas huma.Registry, t reflect.Type, examples map[string]*huma.Example) *huma.RequestBody {
	return &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/json": {Schema: schemas.Schema(t, true, ""), Examples: examples},
	}}
}

// examples are submissions to begin with. Made up from the schema, one would have
// every field in it, of which several exclude each other.
var examples = map[string]*huma.Example{
	"list": {Summary: "A list of URLs", Value: map[string]any{
		"urls": []string{"https://example.com/", "https://example.com/about"}, "tags": []string{"trial"},
	}},
	"site": {Summary: "A site", Value: map[string]any{
		"seed_url": "https://example.com/", "scope": "host", "max_pages": 50, "max_depth": 3, "exclude": []string{"/private/**"},
		"time_limit": "10m",
	}},
	"fields": {Summary: "Fields and the text of each page", Value: map[string]any{
		"urls": []string{"https://example.com/chairs/1", "https://example.com/chairs/2"}, "formats": []string{"markdown", "metadata"},
		"main_content": true,
		"fields": map[string]any{
			"title": map[string]any{"selector": "h1", "required": true},
			"price": map[string]any{"selector": ".price", "type": "number", "locale": "de", "regex": "([0-9.,]+) €"},
			"image": map[string]any{"selector": "img.main", "attr": "src"},
			"tags":  map[string]any{"selector": "xpath://ul[@class='tags']/li", "many": true},
			"stock": map[string]any{"selector": ".stock", "type": "integer", "default": 0},
			"cheap": map[string]any{"expr": "price != nil && price < 50"},
		},
	}},
	"collection": {Summary: "Items of a site that are kept across crawls", Value: map[string]any{
		"seed_url": "https://example.com/jobs/", "scope": "prefix", "list_pages": []string{"/jobs/", "/jobs/?page=*"},
		"fields": map[string]any{"heading": map[string]any{"selector": "h1"}},
		"items": map[string]any{
			"selector": ".posting",
			"fields": map[string]any{
				"id":     map[string]any{"selector": ":scope", "attr": "data-id", "required": true},
				"city":   map[string]any{"selector": ".city"},
				"skills": map[string]any{"selector": ".skill", "many": true},
				"salary": map[string]any{"selector": ".salary", "type": "integer", "regex": `(\d+)k`},
			},
		},
		"collection": map[string]any{
			"name": "jobs", "key": "id", "facets": []string{"city", "skills"}, "numbers": []string{"salary"},
		},
	}},
}

// inlineScript matches the scripts in a page that the policy must name by their digest.
var inlineScript = regexp.MustCompile(`(?s)<script>(.*?)</script>`)

// serveDocs serves the OpenAPI document, and a page that shows it. All of both is
// made here, once.
func (s *Server) serveDocs() error {
	doc, err := s.document()
	if err != nil {
		return fmt.Errorf("httpapi: OpenAPI document: %w", err)
	}
	s.engine.Match(readMethods, openAPIPath, func(c *gin.Context) { c.Data(http.StatusOK, "application/json", doc) })

	ui := v5emb.New("Trawl", openAPIPath, docsPath)
	page := pageWriter{header: http.Header{}}
	r, err := http.NewRequest(http.MethodGet, docsPath, http.NoBody) //nolint:noctx // answered in this process, at once
	if err != nil {
		return fmt.Errorf("httpapi: page of the documentation: %w", err)
	}
	ui.ServeHTTP(&page, r)
	if page.Len() == 0 {
		return fmt.Errorf("httpapi: page of the documentation is empty")
	}
	// Scripts of this server and the two in the page itself, nothing from anywhere
	// else: whatever a description in the document might smuggle in does not run.
	// The interface sets styles in elements and shows its icons as data.
	policy := []string{
		"default-src 'none'", "connect-src 'self'", "img-src 'self' data:", "style-src 'self' 'unsafe-inline'",
		"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
	}
	scripts := "script-src 'self'"
	for _, m := range inlineScript.FindAllSubmatch(page.Bytes(), -1) {
		digest := sha256.Sum256(m[1])
		scripts += " 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) + "'"
	}
	csp := strings.Join(append(policy, scripts), "; ")
	s.engine.Match(readMethods, docsPath, func(c *gin.Context) {
		c.Header("Content-Security-Policy", csp)
		c.Data(http.StatusOK, "text/html; charset=utf-8", page.Bytes())
	})
	files, err := static.FS.ReadDir(".")
	if err != nil {
		return fmt.Errorf("httpapi: files of the documentation: %w", err)
	}
	assets := map[string]bool{}
	for _, f := range files {
		assets["/"+strings.TrimSuffix(f.Name(), ".gz")] = true // unpacked for who does not take gzip
	}
	s.engine.Match(readMethods, docsPath+"/*asset", func(c *gin.Context) {
		switch asset := c.Param("asset"); {
		case asset == "/" || asset == "/index.html":
			c.Redirect(http.StatusMovedPermanently, docsPath)
		case !assets[asset]:
			s.refuse(c, crawl.Faultf(crawl.CodeNotFound, "no such file"))
		default:
			c.Header("Cache-Control", "public, max-age=3600") // changes with the binary only
			ui.ServeHTTP(c.Writer, c.Request)
		}
	})
	return nil
}

// pageWriter keeps what a handler answers.
type pageWriter struct {
	bytes.Buffer
	header http.Header
}

func (w *pageWriter) Header() http.Header { return w.header }
func (w *pageWriter) WriteHeader(int)     {}
