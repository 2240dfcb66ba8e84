package crawl

import (
	"slices"
	"time"
)

// Retry derives the job that tries failed URLs of an ended job again, from the plan of that job,
// the secrets in it included. It fetches these URLs and follows no link, as any job of
// [Spec.URLs], and is planned by the same code; urls are at least one and at most
// [Limits.MaxURLs]. What the job asked for is kept, within what l and src allow today: a bound
// that was narrowed since binds, and a URL that may not be crawled any more refuses the whole.
//
// Headers go only where they went before: a failed URL of another origin than the inputs had is
// an input now, and is given none.
//
// The job is of the [Plan.Series] of the old one, so that what it sees has been seen; no more is
// concluded from it, since it is a retry: it makes no item of its collection missing.
//
// The spec is what is to be shown of the job; its secrets are still in it. The error is that of
// [Spec.Plan].
func Retry(old *Plan, urls, tags []string, l Limits, src Sources) (Spec, Plan, []Input, error) {
	s := respec(old, urls, tags, l.orDefault())
	plan, inputs, err := s.Plan(l, src)
	if err != nil {
		return Spec{}, Plan{}, nil, err
	}
	// Both are refused of a list of URLs, where the one would say nothing of links and the other
	// would go to each origin that is named.
	plan.ListPages, s.ListPages = old.ListPages, old.ListPages
	if len(old.Seeds) > 0 { // of a site crawl, or of a retry of one: where a redirect may lead
		plan.Scope, plan.Seeds, plan.Include, plan.Exclude = old.Scope, old.Seeds, old.Include, old.Exclude
		s.Scope, s.Include, s.Exclude = old.Scope, old.Include, old.Exclude
	}
	if origins := origins(inputs, old.HeaderOrigins); len(origins) > 0 {
		c := checked{}
		if c.checkHeaders(old.Headers); len(c.faults) > 0 {
			return Spec{}, Plan{}, nil, &Fault{
				Code: CodeInvalid, Fields: c.faults,
				Message: "The headers of the job are not taken any more. Submit the URLs as a new job without them.",
			}
		}
		plan.Headers, plan.HeaderOrigins, s.Headers = old.Headers, origins, old.Headers
	}
	if plan.Collection != nil {
		plan.Series = old.Series
	}
	return s, plan, inputs, nil
}

// respec returns the spec of a list of URLs that asks for what a plan does, within limits.
func respec(p *Plan, urls, tags []string, l Limits) Spec {
	within := func(v, least, most time.Duration) *Duration {
		if v <= 0 || most < least {
			return nil // the default: nothing was decided, or a spec can ask for nothing that is allowed
		}
		return new(Duration(max(min(v, most), least)))
	}
	s := Spec{
		URLs: urls, Tags: tags,
		TimeLimit: within(p.TimeLimit, MinTimeLimit, l.TimeLimit),
		Retention: within(p.Retention, MinRetention, l.Retention),
		Delay:     within(p.Delay, l.HostDelay, max(MaxDelay, l.HostDelay)),
		Formats:   p.Formats, MainContent: p.MainContent, Fields: p.Fields, Items: p.Items, Collection: p.Collection,
		UserAgent: p.UserAgent, DropParams: p.DropParams, SortParams: p.SortParams, Webhook: p.Webhook,
	}
	if p.Concurrency > 0 {
		s.Concurrency = new(min(p.Concurrency, l.Concurrency))
	}
	if p.IgnoreRobots {
		s.RespectRobots = new(false)
	}
	return s
}

// origins returns those of known that inputs have.
func origins(inputs []Input, known []string) []string {
	has := make(map[string]bool, len(known))
	for _, in := range inputs {
		has[in.URL.Origin()] = true
	}
	return slices.DeleteFunc(slices.Clone(known), func(origin string) bool { return !has[origin] })
}
