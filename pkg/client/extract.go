package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// Extract says what to take out of one page: of HTML that is given, or of a URL that the
// service fetches, one of the two. The rest is as in [Spec].
type Extract struct {
	HTML    string `json:"html,omitempty"`     // UTF-8
	BaseURL string `json:"base_url,omitempty"` // of HTML: what its links are relative to; without one these are left out
	URL     string `json:"url,omitempty"`

	Fields      Fields          `json:"fields,omitempty"`
	Items       *Items          `json:"items,omitempty"`
	Formats     []ContentFormat `json:"formats,omitempty"`
	MainContent bool            `json:"main_content,omitempty"`

	Headers       map[string]string `json:"headers,omitempty"` // these three are for a URL
	UserAgent     string            `json:"user_agent,omitempty"`
	RespectRobots *bool             `json:"respect_robots,omitempty"`
}

// Extraction is what a page gives.
type Extraction struct {
	SourceURL string `json:"source_url"` // as it was given
	URL       string `json:"url"`        // where it ended
	Title     string `json:"title"`

	Fields json.RawMessage `json:"fields"` // an object in the order of the spec, see [Extraction.Decode]; nil for none
	// Items are the fields of each item, an object each; ItemsFound is how many there are.
	Items      []json.RawMessage `json:"items"`
	ItemsFound int               `json:"items_found"`
	Missing    []string          `json:"missing"` // required fields without a value, for which a job would fail the page
	Notes      []Note            `json:"notes"`

	Markdown string     `json:"markdown"`
	Text     string     `json:"text"`
	HTML     string     `json:"html"`
	Links    []PageLink `json:"links"`
	Metadata *Metadata  `json:"metadata"`

	JobID string        `json:"job_id"` // of the job that fetched a URL
	Error *ExtractError `json:"error"`  // why the page could not be fetched; nil where it could
	// Pending says that the page was still being fetched when the service answered: there is
	// nothing but JobID then, and the job has the rest.
	Pending bool `json:"-"`

	// Raw is the whole as the service sent it, with what this version does not know.
	Raw json.RawMessage `json:"-"`
}

// ExtractError says why a page could not be fetched, as [PageError] does.
type ExtractError struct {
	ErrorType string `json:"error_type"`
	Status    int    `json:"status"` // of the HTTP answer; 0 without one
	Message   string `json:"message"`
}

// Decode decodes the fields of the page into v, as [json.Unmarshal] does. A page that has none
// is an error.
func (e *Extraction) Decode(v any) error { return decodeFields("the page", e.Fields, v) }

// UnmarshalJSON implements json.Unmarshaler. It keeps the whole in Raw.
func (e *Extraction) UnmarshalJSON(data []byte) error {
	type plain Extraction
	p, err := decodeFresh[plain](data)
	*e = Extraction(p)
	e.Raw = bytes.Clone(data)
	e.Fields = orNil(e.Fields)
	return err
}

// Extract tries what a job would take out of a page. HTML is read by the service as it comes,
// and nothing of it is kept. A URL is fetched by a job of one page, under all rules of jobs; it
// takes up to half a minute, and a call that is repeated fetches it again. A required field
// without a value is no error: see [Extraction.Missing].
func (c *Client) Extract(ctx context.Context, what Extract) (*Extraction, error) {
	var body bytes.Buffer
	text := json.NewEncoder(&body)
	text.SetEscapeHTML(false) // each < would be six bytes, of those that the service takes
	if err := text.Encode(what); err != nil {
		return nil, fmt.Errorf("extract: %w", err)
	}
	var out Extraction
	q := request{call: "extract", method: http.MethodPost, path: "/v1/extract", body: body.Bytes()}
	err := c.do(ctx, &q, func(resp *http.Response) error {
		if err := c.decode(resp, &out); err != nil {
			return err
		}
		// Any JSON object would pass for a page that gives nothing.
		var is struct {
			SourceURL json.RawMessage `json:"source_url"`
		}
		out.Pending = resp.StatusCode == http.StatusAccepted
		if err := json.Unmarshal(out.Raw, &is); err != nil || is.SourceURL == nil && out.JobID == "" {
			return c.foreign(resp, out.Raw, "it is no page")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}
