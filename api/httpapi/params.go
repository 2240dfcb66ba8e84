package httpapi

import (
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"example.com/trawl/pkg/crawl"
)

// listLimit and pageLimit are the sizes of pages as clients write them. huma
// takes them as the strings they are, so that all faults of a request are told
// in one way, and documents them as numbers.
type (
	listLimit string
	pageLimit string
)

// Bounds of the sizes of pages.
const (
	listLimitDefault, listLimitMax = 50, 200
	pageLimitDefault, pageLimitMax = 100, 1000
)

// Schema documents the parameter.
func (listLimit) Schema(huma.Registry) *huma.Schema {
	return limitSchema(listLimitDefault, listLimitMax)
}

// Schema documents the parameter.
func (pageLimit) Schema(huma.Registry) *huma.Schema {
	return limitSchema(pageLimitDefault, pageLimitMax)
}

func limitSchema(def, most int) *huma.Schema {
	one, high := 1.0, float64(most)
	return &huma.Schema{
		Type: huma.TypeInteger, Minimum: &one, Maximum: &high, Default: def, Description: "Size of a page at most.",
	}
}

// queryNames returns the query parameters that an input type documents.
func queryNames(t reflect.Type) []string {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("query"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// queryFaults returns what is wrong with the query as a whole: a parameter that
// is not known would be left out in silence, of one given twice one value would.
func queryFaults(raw string, known []string) []crawl.FieldFault {
	if raw == "" {
		return nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return []crawl.FieldFault{{
			Field: "query", Rule: ruleFormat, Message: "This is not a query. Write name=value, joined by &, with % escapes.",
		}}
	}
	var faults []crawl.FieldFault
	for name, of := range values {
		switch {
		case !slices.Contains(known, name):
			faults = append(faults, crawl.FieldFault{
				Field: shownName(name), Rule: ruleUnknown, Message: "This is not a parameter here. Correct or remove it.",
			})
		case len(of) > 1:
			faults = append(faults, crawl.FieldFault{
				Field: name, Rule: ruleDuplicate, Message: "This is given more than once. Give it once.",
			})
		}
	}
	slices.SortFunc(faults, func(a, b crawl.FieldFault) int { return strings.Compare(a.Field, b.Field) })
	if more := len(faults) - maxFaults; more > 0 {
		faults = append(faults[:maxFaults], crawl.FieldFault{
			Field: "query", Rule: crawl.RuleMoreFaults,
			Message: fmt.Sprintf("%d more parameters have faults. Mend these first.", more),
		})
	}
	return faults
}

// params parses query parameters and collects what is wrong with them. An empty
// one counts as not given.
type params struct {
	faults    []crawl.FieldFault
	badCursor bool
}

func (p *params) add(field, rule, format string, args ...any) {
	p.faults = append(p.faults, crawl.FieldFault{Field: field, Rule: rule, Message: fmt.Sprintf(format, args...)})
}

func (p *params) limit(s string, def, most int) int {
	if s == "" {
		return def
	}
	n, err := strconv.Atoi(s)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		p.add("limit", ruleType, "Give a whole number.")
	case err != nil || n < 1 || n > most:
		p.add("limit", ruleRange, "Give a number from 1 to %d.", most)
	}
	return n
}

func (p *params) cursor(kind byte, s string) int64 {
	if s == "" {
		return 0
	}
	position, ok := decodeCursor(kind, s)
	if !ok {
		p.badCursor = true
		p.add("cursor", ruleFormat, "This is not a next_cursor of this list. Begin again without one.")
	}
	return position
}

func (p *params) state(s string) crawl.State {
	state := crawl.State(s)
	if s != "" && !state.Valid() {
		names := make([]string, len(crawl.States))
		for i, known := range crawl.States {
			names[i] = string(known)
		}
		p.add("state", "enum", "Give one of %s.", strings.Join(names, ", "))
	}
	return state
}

func (p *params) time(field, s string) time.Time {
	if s == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		p.add(field, ruleFormat, "Give a time like 2006-01-02T15:04:05Z (RFC 3339; a + in it is written %%2B).")
	}
	return t
}

// err returns all faults as one. A cursor is opaque, so a bad one is no value
// that breaks a rule but something that is not what it should be.
func (p *params) err() error {
	switch {
	case len(p.faults) == 0:
		return nil
	case p.badCursor:
		return &crawl.Fault{
			Code: crawl.CodeMalformed, Message: "The cursor is not one that this list gave out. Begin again without one.", Fields: p.faults,
		}
	}
	return &crawl.Fault{
		Code: crawl.CodeInvalid, Message: "The query breaks rules of the contract; errors names each parameter.",
		Fields: p.faults,
	}
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
