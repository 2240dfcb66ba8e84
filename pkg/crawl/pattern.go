package crawl

import (
	"fmt"
	"strings"
)

// Patterns of URLs of which a site can make any number, and of which no single one looks
// wrong.
const (
	patternCalendar = "calendar"
	patternFacets   = "facets"
)

// A pattern may have a quarter of a job's pages, so that a calendar and the filters of a
// shop together leave half of them to the rest of the site; but no fewer than
// minPatternBudget, which is what a small job may well want of an archive by month, and
// no more than maxPatternBudget: 27 years of days.
const (
	patternShare     = 4
	minPatternBudget = 20
	maxPatternBudget = 10_000
)

// PatternBudget returns how many URLs of one [Rules.Pattern] a job may admit; further
// ones are refused as [RefusedTrap]. It grows with max_pages: who wants more of a
// calendar raises that.
func (p *Plan) PatternBudget() int64 {
	return min(max(p.MaxPages/patternShare, minPatternBudget), maxPatternBudget, max(p.MaxPages, 0))
}

// PatternRule says for a person by which rule a URL of the given pattern was refused
// when its budget was used up.
func (p *Plan) PatternRule(pattern string) string {
	kind, where, _ := strings.Cut(pattern, ":")
	what := "faceted URLs"
	if kind == patternCalendar {
		what = "calendar URLs"
	}
	return fmt.Sprintf("at most %d %s of %s", p.PatternBudget(), what, where)
}

// Pattern returns the name of the pattern that u belongs to, "" for nearly all URLs. It
// has no spaces and is short, so that whoever admits links can count them by it, up to
// [Plan.PatternBudget]; the first that are found are the ones that get in.
//
// calendar:HOST/PATH: the path ends in year and month, in year, month and day, or in a date
// with hyphens, and PATH is what stands before; or the query has a year and a month,
// week or day, or a date, and PATH is the path. Segments of PATH that are numbers are
// "N", and it is cut at 64 bytes. What stands below a date, as /2024/05/17/a-title,
// is a page like any other.
//
// facets:HOST: the query has a parameter twice, or an order (sort, orderby, dir, …)
// beside another parameter, or four parameters or more. They are one for a host, since
// a shop has the same filters in each of its categories.
//
// A query that names its page by an id (id, tid, item_id, …) is no calendar, and its
// number of parameters says nothing. Numbered pages, such as /p/17, ?page=17 or
// /viewtopic?f=1&t=17, are no pattern.
//
// Only site crawls have patterns: no link of a list is followed.
func (r *Rules) Pattern(u URL) string {
	if !r.site || u.IsZero() {
		return ""
	}
	n := u.normal()
	path := n.Path()
	var q queryTraits
	if query := n.Query(); query != "" {
		q = traitsOf(query)
	}
	switch dir, dated := datedPath(path); {
	case q.sorted && q.params > 1, q.repeated:
		return patternFacets + ":" + n.PolitenessHost()
	case q.identified:
		return ""
	case dated:
		return calendarOf(n.PolitenessHost(), dir)
	case q.date, q.year && q.dayOfYear:
		return calendarOf(n.PolitenessHost(), path)
	case q.params >= manyParams:
		return patternFacets + ":" + n.PolitenessHost()
	}
	return ""
}

// calendarOf names the pattern of the calendar at path, of which every room or user of a
// site may have one.
func calendarOf(host, path string) string {
	const longest = 64
	b := append(make([]byte, 0, len(patternCalendar)+1+len(host)+longest), patternCalendar+":"...)
	b = append(b, host...)
	start := len(b)
	for segment := range strings.SplitSeq(path[1:], "/") {
		b = append(b, '/')
		if segment != "" && allDigits(segment) {
			segment = "N"
		}
		b = append(b, segment...)
	}
	return string(b[:min(len(b), start+longest)])
}

// manyParams without an id are a filter: forums and shops name their pages by up to three
// parameters.
const manyParams = 4

// queryTraits are what the names of parameters, and the form of their values, say of a
// query.
type queryTraits struct {
	params          int
	repeated        bool // a name that is given twice
	sorted          bool // an order is asked for
	identified      bool // the page is named by an id
	year, dayOfYear bool // the latter for a month or a week, too
	date            bool // all of it in one value
}

func traitsOf(query string) queryTraits {
	var t queryTraits
	var buf [MaxParams]string
	names := buf[:0]
	for piece := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(piece, "=")
		if name == "" {
			continue
		}
		t.params++
		if len(names) < cap(names) {
			for _, before := range names {
				t.repeated = t.repeated || before == name
			}
			names = append(names, name)
		}
		name = strings.ToLower(name)
		switch paramKinds[name] {
		case paramSort:
			t.sorted = true
		case paramYear:
			t.year = t.year || isInteger(value)
		case paramDay:
			t.dayOfYear = t.dayOfYear || isInteger(value) || isMonthName(value)
			t.date = t.date || isCompactDate(value)
		case paramOther:
			t.identified = t.identified || strings.HasSuffix(name, "id")
		}
		t.date = t.date || isDate(value)
	}
	return t
}

// paramKind is what a parameter is for, by its name.
type paramKind byte

const (
	paramOther paramKind = iota
	paramSort
	paramYear
	paramDay
)

// paramKinds are names in lower case. They are those of common calendars (The Events
// Calendar, MRBS, Drupal, TYPO3, WordPress) and shops.
var paramKinds = func() map[string]paramKind {
	kinds := map[string]paramKind{}
	for kind, names := range map[paramKind]string{
		paramSort: "sort sorting sort_by sortby sortorder sort_order sortdir sort_dir order orderby order_by orderway " +
			"order_dir dir direction product_list_order product_list_dir",
		paramYear: "y yr year jahr annee ano anno calyear cal_year",
		paramDay: "m mo mon month monat mois mes mese calmonth cal_month d day tag jour dia giorno calday cal_day " +
			"w wk week woche date yearmonth",
	} {
		for name := range strings.FieldsSeq(names) {
			kinds[name] = kind
		}
	}
	return kinds
}()

// datedPath reports whether a path ends in a date, in one segment or one a part, and
// returns the directory of the date.
func datedPath(path string) (dir string, ok bool) {
	one, last := cutLast(strings.TrimSuffix(path, "/"))
	if dot := strings.LastIndexByte(last, '.'); dot > 0 && !isInteger(last[dot+1:]) {
		last = last[:dot] // an extension
	}
	if last == "" || len(last) > len("2024-september-30") {
		return "", false
	}
	if isDate(last) {
		return one, true
	}
	two, middle := cutLast(one)
	if isYear(middle) {
		return two, isMonth(last) || isWeek(last)
	}
	three, first := cutLast(two)
	return three, isYear(first) && isMonth(middle) && inRange(last, 1, 31)
}

// cutLast cuts the last segment off a path, which keeps the slash at its end.
func cutLast(path string) (dir, last string) {
	i := strings.LastIndexByte(strings.TrimSuffix(path, "/"), '/') + 1
	return path[:i], strings.TrimSuffix(path[i:], "/")
}

// isDate reports whether s is a date with separators: 2024-05, 2024-05-17, 17.05.2024,
// 2024-W20, and 2024-05-17 with a time behind it.
func isDate(s string) bool {
	if len(s) < len("2024-5") || s[0] < '0' || s[0] > '9' {
		return false
	}
	if i := strings.IndexAny(s, "T +"); i > 0 { // a time
		s = s[:i]
	}
	first, rest, ok := cutDate(s)
	if !ok {
		return false
	}
	second, third, full := cutDate(rest)
	switch {
	case isYear(first) && !full:
		return isMonth(rest) || isWeek(rest)
	case isYear(first):
		return isMonth(second) && inRange(third, 1, 31)
	}
	return full && inRange(first, 1, 31) && isMonth(second) && isYear(third)
}

// cutDate cuts s at the first separator of dates. An encoded slash is one of them.
func cutDate(s string) (part, rest string, ok bool) {
	i := strings.IndexAny(s, "-/_.%")
	if i < 0 {
		return s, "", false
	}
	if encoded := "%2F"; s[i] == '%' {
		rest, ok = strings.CutPrefix(s[i:], encoded)
		return s[:i], rest, ok
	}
	return s[:i], s[i+1:], true
}

// isCompactDate reports whether s is 202405 or 20240517.
func isCompactDate(s string) bool {
	switch len(s) {
	case len("202405"):
		return isYear(s[:4]) && inRange(s[4:], 1, 12)
	case len("20240517"):
		return isYear(s[:4]) && inRange(s[4:6], 1, 12) && inRange(s[6:], 1, 31)
	}
	return false
}

// isYear reports whether s is a year that calendars show. Four digits alone would make
// dates of /topic/4821/2.
func isYear(s string) bool { return len(s) == 4 && inRange(s, 1900, 2099) }

func isMonth(s string) bool { return inRange(s, 1, 12) || isMonthName(s) }

func isWeek(s string) bool {
	return len(s) > 1 && s[0]|0x20 == 'w' && inRange(s[1:], 1, 53)
}

// isMonthName knows the months in English, whole or by three letters.
func isMonthName(s string) bool {
	if len(s) < 3 {
		return false
	}
	for _, month := range []string{
		"january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
		"december",
	} {
		if strings.EqualFold(s, month) || strings.EqualFold(s, month[:3]) {
			return true
		}
	}
	return false
}

// isInteger reports whether s is a whole number, which may have a sign.
func isInteger(s string) bool {
	s = strings.TrimPrefix(s, "-")
	return s != "" && allDigits(s)
}

// inRange reports whether s is a number of at most four digits from least to most.
func inRange(s string, least, most int) bool {
	if s == "" || len(s) > 4 || !allDigits(s) {
		return false
	}
	n := 0
	for i := range len(s) {
		n = 10*n + int(s[i]-'0')
	}
	return least <= n && n <= most
}
