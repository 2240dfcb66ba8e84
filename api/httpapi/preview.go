package httpapi

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"example.com/trawl/pkg/crawl"
)

// maxChecks bounds the URLs of one preview that are no inputs: as many as a person reads.
const maxChecks = 100

// previewRequest is the body of POST /v1/jobs/preview: a submission, and what it is asked about.
type previewRequest struct {
	submission
	Check []string `json:"check,omitempty" maxItems:"100" doc:"URLs to judge, each as if a seed linked to it. Without it the inputs themselves are judged."`
}

func init() {
	// The table stands in strict.go; a preview knows the names of a submission and one more.
	t := reflect.TypeFor[previewRequest]()
	shapes[t] = newShape(t)
}

// TransformSchema adds the fields of a submission, as that of a shownSpec does.
func (previewRequest) TransformSchema(r huma.Registry, s *huma.Schema) *huma.Schema {
	ref := r.Schema(reflect.TypeFor[submission](), true, "").Ref
	maps.Copy(s.Properties, r.SchemaFromRef(ref).Properties)
	s.AdditionalProperties = false
	return s
}

// previewExamples are previews to begin with.
var previewExamples = map[string]*huma.Example{
	"links": {Summary: "Which links a crawl would follow", Value: map[string]any{
		"seed_url": "https://example.com/docs/", "scope": "prefix", "exclude": []string{"/docs/old/**"},
		"check": []string{"https://example.com/docs/a", "https://example.com/docs/old/b", "https://example.com/blog"},
	}},
	"inputs": {Summary: "Whether the inputs may be crawled", Value: map[string]any{
		"urls": []string{"https://example.com/", "https://example.com/about"},
	}},
}

// judgement is what a job would do with one URL.
type judgement struct {
	URL       string        `json:"url" doc:"As it was given."`
	Canonical *string       `json:"canonical" doc:"As it would be fetched; null when it is no URL that can be."`
	Key       *string       `json:"key" doc:"Two URLs with the same key are one page of a job."`
	Admitted  bool          `json:"admitted"`
	Reason    *crawl.Reason `json:"reason" doc:"Why it would be refused, as in refused_by_reason of a status; null when it would be admitted."`
	Rule      *string       `json:"rule" doc:"The rule that decides: a pattern, a bound, or the field that names the URL as an input; null when it is none in particular."`
	Message   string        `json:"message" doc:"The same for a person."`
}

type previewInput struct{}

type previewOutput struct {
	Body preview
}

// preview is what a job would do with the URLs that it is asked about.
type preview struct {
	Items []judgement `json:"items" nullable:"false" doc:"One for each URL, in their order."`
}

// previewJob says which URLs a job would admit, and stores nothing.
func (s *Server) previewJob(ctx context.Context, x *exchange, _ *previewInput) (*previewOutput, error) {
	out := &previewOutput{}
	err := s.withBody(ctx, x, func(body []byte) error {
		var in previewRequest
		wrong := decodeStrict(body, &in)
		if wrong != nil && in.empty() {
			return wrong
		}
		j, err := judgeOf(x.account(), &in)
		if err = together(wrong, err); err != nil {
			return err
		}
		if len(in.Check) == 0 {
			out.Body.Items, err = j.inputs(ctx)
		} else {
			out.Body.Items, err = j.links(ctx, in.Check)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// judge decides about URLs as a job would.
type judge struct {
	plan  crawl.Plan
	rules *crawl.Rules
	field string   // that names the inputs
	given []string // the inputs as they were given
	named map[crawl.Key]bool

	dropParams []string
	sortParams bool
}

// judgeOf returns the judge of a request of the account. Its faults are those of the submission, but for
// inputs outside of the sources when these are what is asked about.
func judgeOf(acct *account, in *previewRequest) (*judge, error) {
	sources := acct.sources
	if len(in.Check) == 0 {
		sources = anySource
	}
	plan, inputs, err := acct.plan(&in.submission, sources, nil)
	if n := len(in.Check); n > maxChecks {
		err = together(err, &crawl.Fault{
			Code: crawl.CodeInvalid, Message: "The preview is asked about too much at once.",
			Fields: []crawl.FieldFault{{
				Field: "check", Rule: ruleMax,
				Message: fmt.Sprintf("Give at most %d URLs, not %d. Ask several times.", maxChecks, n),
			}},
		})
	}
	if err != nil {
		return nil, err
	}
	plan.Sources = acct.sources.Strings()
	rules, err := plan.Rules()
	if err != nil {
		return nil, fmt.Errorf("rules of a plan: %w", err)
	}
	j := &judge{
		plan: plan, rules: rules, named: make(map[crawl.Key]bool, len(inputs)),
		dropParams: in.DropParams, sortParams: in.SortParams,
	}
	for _, input := range inputs {
		j.named[input.URL.Key()] = true
	}
	switch {
	case len(in.URLs) > 0:
		j.field, j.given = "urls", in.URLs
	case in.SeedURL != "":
		j.field, j.given = "seed_url", []string{in.SeedURL}
	default:
		j.field, j.given = "seeds", in.Seeds
	}
	return j, nil
}

// anySource allows what a judge is to look at himself.
var anySource, _ = crawl.ParseSources("*")

// inputs judges the inputs: whatever the rules say of links, they are admitted, unless
// their source is not allowed. The error is that of ctx: nobody reads the answer any more.
func (j *judge) inputs(ctx context.Context) ([]judgement, error) {
	first := make(map[crawl.Key]int, len(j.given))
	out := make([]judgement, len(j.given))
	for i, text := range j.given {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		v := &out[i]
		v.URL = text
		u, err := j.input(text)
		if err != nil {
			v.refuseText(err)
			continue
		}
		v.name(u)
		at, again := first[u.Key()]
		reason, _ := j.rules.Explain(u, 0)
		switch {
		case reason == crawl.RefusedSource:
			v.refuse(reason, j.allowed(), notAllowed)
		case again:
			v.admit(j.field, fmt.Sprintf("It is the same page as %s[%d] and is crawled once.", j.field, at))
		default:
			first[u.Key()] = i
			v.admit(j.field, "It is an input, which is always admitted.")
		}
	}
	return out, nil
}

// input reads an input as a job does, which takes other liberties with it than with a link.
func (j *judge) input(text string) (crawl.URL, error) {
	alone := crawl.Spec{URLs: []string{text}, DropParams: j.dropParams, SortParams: j.sortParams}
	_, inputs, err := alone.Plan(crawl.DefaultLimits(), anySource)
	if err != nil {
		return crawl.URL{}, err
	}
	return inputs[0].URL, nil
}

// links judges links. The error is that of ctx, as in inputs.
func (j *judge) links(ctx context.Context, texts []string) ([]judgement, error) {
	out := make([]judgement, len(texts))
	for i, text := range texts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		v := &out[i]
		v.URL = text
		u, err := crawl.ParseURL(text)
		if err != nil {
			v.refuseText(err)
			continue
		}
		u = j.rules.Canonical(u)
		v.name(u)
		j.link(u, v)
	}
	return out, nil
}

// link judges a link to u from a seed.
func (j *judge) link(u crawl.URL, v *judgement) {
	if j.named[u.Key()] {
		v.admit(j.field, "It is an input, which is always admitted.")
		return
	}
	reason, rule := j.rules.Explain(u, 1)
	switch {
	case reason == "" && rule != "":
		v.admit(rule, "A pattern of include matches it. "+j.unlessFull())
	case reason == "":
		v.admit("", "No rule is against it. "+j.unlessFull())
	case reason == crawl.RefusedSource:
		v.refuse(reason, j.allowed(), notAllowed)
	case reason == crawl.RefusedTrap:
		v.refuse(reason, rule, "It looks as if there were no end of such URLs.")
	case reason == crawl.RefusedDepth && !j.plan.Site:
		v.refuse(reason, j.field, "With urls only the pages named are crawled; no link is followed.")
	case reason == crawl.RefusedDepth:
		v.refuse(reason, rule, "It is further away from a seed than max_depth allows.")
	case reason == crawl.RefusedOutOfScope:
		v.refuse(reason, "scope "+j.plan.Scope, "It is outside of the scope of every seed.")
	case reason == crawl.RefusedExcluded && rule == crawl.RuleSteps:
		v.refuse(reason, rule, "It is too long for the patterns of include or exclude. Use simpler ones.")
	case reason == crawl.RefusedExcluded && slices.Contains(j.plan.Exclude, rule):
		v.refuse(reason, rule, "A pattern of exclude matches it.")
	case reason == crawl.RefusedExcluded:
		v.refuse(reason, rule, "There are include patterns, and none matches it.")
	default:
		v.refuse(reason, rule, "A rule of the job refuses it.")
	}
}

func (j *judge) unlessFull() string {
	return fmt.Sprintf("It is crawled unless %d URLs were admitted before.", j.plan.MaxPages)
}

const notAllowed = "It may not be crawled here. Leave it out, or ask the operator to allow it."

// shownSources is how many of the allowed sources a judgement names: it is repeated for
// every URL that is refused, and a list of them may be long.
const shownSources = 5

func (j *judge) allowed() string {
	if len(j.plan.Sources) == 0 {
		return "no source is allowed"
	}
	shown := make([]string, 0, shownSources+1)
	for _, s := range j.plan.Sources[:min(shownSources, len(j.plan.Sources))] {
		shown = append(shown, clip(s))
	}
	if more := len(j.plan.Sources) - shownSources; more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}
	return "allowed sources: " + strings.Join(shown, ", ")
}

// name says as which page of the job a URL counts.
func (v *judgement) name(u crawl.URL) {
	canonical, key := u.String(), u.Key()
	digits := hex.EncodeToString(key[:])
	v.Canonical, v.Key = &canonical, &digits
}

// refuseText refuses what is no URL.
func (v *judgement) refuseText(err error) {
	v.refuse(crawl.RefusedReasonOf(err), "", "This is not a URL that can be crawled: "+messageOf(err)+".")
}

func (v *judgement) admit(rule, message string) {
	v.Admitted, v.Rule, v.Message = true, unlessZero(rule), message
}

func (v *judgement) refuse(reason crawl.Reason, rule, message string) {
	v.Reason, v.Rule, v.Message = &reason, unlessZero(rule), message
}
