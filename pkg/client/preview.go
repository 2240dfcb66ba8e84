package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// Judgement is what a job would do with one URL.
type Judgement struct {
	URL       string `json:"url"`       // as it was given
	Canonical string `json:"canonical"` // as it would be fetched; empty when it cannot be
	Key       string `json:"key"`       // two URLs with the same key are one page of a job
	Admitted  bool   `json:"admitted"`
	Reason    string `json:"reason"`  // why it would be refused; empty when it would be admitted
	Rule      string `json:"rule"`    // that decides: a pattern, a bound, or the field that names the URL as an input
	Message   string `json:"message"` // the same for a person
}

// Preview asks what a job would do with URLs, at most 100, if a seed linked to them, and
// without any with its inputs. Nothing is fetched or stored; robots.txt, for one, is not
// looked at. The judgements are in the order of the URLs.
func (c *Client) Preview(ctx context.Context, spec Spec, check ...string) ([]Judgement, error) {
	body, err := previewBody(spec, check)
	if err != nil {
		return nil, fmt.Errorf("preview: %w", err)
	}
	q := request{call: "preview", method: http.MethodPost, path: jobsPath + "/preview", body: body}
	var out struct {
		Items *[]Judgement `json:"items"`
	}
	err = c.do(ctx, &q, func(resp *http.Response) error {
		if err := c.decode(resp, &out); err != nil {
			return err
		}
		if out.Items == nil {
			return c.foreign(resp, nil, "it has no items")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return *out.Items, nil
}

// previewBody is a spec with one field more.
func previewBody(spec Spec, check []string) ([]byte, error) {
	body, err := json.Marshal(spec)
	if err != nil || len(check) == 0 {
		return body, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, err
	}
	if fields["check"], err = json.Marshal(check); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}
