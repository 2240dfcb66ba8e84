package watch

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/term"

	"example.com/trawl/pkg/client"
)

// shownFailures is how many failed pages a summary names at most.
const shownFailures = 10

// kindMost bounds the column of the types of errors: ours are shorter.
const kindMost = 30

// urlLeast is the least of a URL that is worth a place in a line, in columns.
const urlLeast = 20

// SummaryOptions say how a summary is written.
type SummaryOptions struct {
	Color bool // whether colours may be used
	Width int  // columns that a line has at most; below 1 there is no bound
}

// Summary writes what became of a job that has ended: its state and why it ended, how long it took, the
// counts, failed pages by type, skipped ones and refused links by reason, and the first few failed pages.
// Where w is a terminal no line is longer than it is wide.
func Summary(w io.Writer, job *client.Job, failed []client.PageError, color bool) {
	o := SummaryOptions{Color: color}
	if f, ok := w.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil {
			o.Width = columns
		}
	}
	Summarize(w, job, failed, o)
}

// Summarize is [Summary] for a width that is given.
func Summarize(w io.Writer, job *client.Job, failed []client.PageError, o SummaryOptions) {
	if job == nil {
		return
	}
	var b strings.Builder
	for _, l := range summaryLines(job, failed, o.Width) {
		if o.Width > 0 {
			l = l.cut(o.Width)
		}
		b.WriteString(l.paint(o.Color) + "\n")
	}
	_, _ = io.WriteString(w, b.String()) // a summary that cannot be written has nobody to tell
}

// summaryLines lays a summary out; width below 1 is no bound.
func summaryLines(j *client.Job, failed []client.PageError, width int) []line {
	out := headLines(j, width)
	for _, g := range []struct {
		name   string
		look   style
		counts map[string]int64
	}{
		{"failed", red, j.FailedByType},
		{"skipped", unstyled, j.SkippedByReason},
		{"refused", unstyled, j.RefusedByReason},
	} {
		if counts := countList(g.counts, width-summaryIndent); counts != "" {
			out = append(out, line{{text: fmt.Sprintf("  %-9s ", g.name), style: g.look}, {text: counts}})
		}
	}
	if j.Error != "" {
		out = append(out, line{{text: fmt.Sprintf("  %-9s ", "error"), style: red}, {text: Clean(j.Error)}})
	}
	return append(out, failureLines(j, failed, width)...)
}

// summaryIndent is where the counts of a group begin.
const summaryIndent = len("  refused   ")

// headLines say what became of the job: in one line, or in more where one is too short or
// there is a reason to tell.
func headLines(j *client.Job, width int) []line {
	w := stateWords(j)
	if !j.State.Terminal() {
		w.state = "still " + w.state
	}
	state := line{{text: w.state, style: w.style}}
	when, counts, hint := ran(j), headCounts(j), ""
	if j.State.Terminal() {
		hint = endHint(j).long
	}
	if hint == "" {
		state = append(state, span{text: when})
		one := append(slices.Clone(state), span{text: ": " + strings.Join(counts, " ")})
		if width < 1 || one.columns() <= width {
			return []line{one}
		}
		return append([]line{state}, filled("", counts, width)...)
	}
	sep := "; "
	if j.State == client.Failed {
		sep = ": "
	}
	if when != "" {
		when = strings.TrimSpace(when) + ":"
	}
	return append([]line{append(state, span{text: sep + hint})}, filled(when, counts, width)...)
}

// filled writes words behind a beginning on as many indented lines as they need: what became
// of a job is told whole, on a narrow terminal as well. Width below 1 is no bound.
func filled(begin string, words []string, width int) []line {
	const indent = "  "
	var out []line
	at := indent + begin
	for _, w := range words {
		sep := ""
		if strings.TrimSpace(at) != "" {
			sep = " "
		}
		if sep != "" && width > 0 && columns(at+sep+w) > width {
			out = append(out, plainText(at))
			at, sep = indent, ""
		}
		at += sep + w
	}
	return append(out, plainText(at))
}

// ran words how long the job ran.
func ran(j *client.Job) string {
	d, ok := took(j)
	switch {
	case !j.State.Terminal():
		return ""
	case ok && (j.State == client.Completed || j.State == client.CompletedWithErrors):
		return " in " + longDuration(d)
	case ok:
		return " after " + longDuration(d)
	case j.StartedAt.IsZero() && j.State == client.Cancelled:
		return " before it began"
	default:
		return ""
	}
}

// headCounts are the counts that are not zero, as words to be set side by side:
// 24 accepted, 2 failed of 26 URLs, 310 kB.
func headCounts(j *client.Job) []string {
	parts := []string{strconv.FormatInt(j.Accepted, 10) + " accepted"}
	for _, c := range []struct {
		n    int64
		word string
	}{
		{j.Failed, "failed"},
		{j.Skipped, "skipped"},
		{j.Cancelled, "cancelled"},
		{j.Queued, "queued"},
		{j.Active, "active"},
		{j.Deferred, "deferred"},
	} {
		if c.n > 0 {
			parts = append(parts, strconv.FormatInt(c.n, 10)+" "+c.word)
		}
	}
	urls := "URLs"
	if j.Total == 1 {
		urls = "URL"
	}
	for i := range len(parts) - 1 {
		parts[i] += ","
	}
	of := "of " + strconv.FormatInt(j.Total, 10) + " " + urls
	if j.Bytes <= 0 {
		return append(parts, of)
	}
	return append(parts, of+",", byteSize(j.Bytes))
}

// countList writes counts by number and then name. Those that do not fit are left out
// whole, because a number that is cut is another number; width below 1 is no bound.
func countList(counts map[string]int64, width int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	s := ""
	for _, name := range names {
		if counts[name] <= 0 {
			continue
		}
		item := Clean(name) + " " + strconv.FormatInt(counts[name], 10)
		if s == "" {
			s = item
			continue
		}
		if width > 0 && columns(s+", "+item+", "+ellipsis) > width {
			return s + ", " + ellipsis
		}
		s += ", " + item
	}
	return s
}

// failureLines name the first failed pages.
func failureLines(j *client.Job, failed []client.PageError, width int) []line {
	shown := failed[:min(len(failed), shownFailures)]
	if len(shown) == 0 {
		return nil
	}
	title := "first of the failed:"
	switch {
	case j.Failed == 1:
		title = "failed page:"
	case int64(len(shown)) >= j.Failed:
		title = "failed pages:"
	}
	typeWidth := 0
	for _, f := range shown {
		typeWidth = max(typeWidth, columns(kindOf(f)))
	}
	out := []line{plainText(title)}
	for _, f := range shown {
		out = append(out, failureLine(f, typeWidth, width))
	}
	return out
}

// failureLine is one failed page. Where it is too long it first leaves out where the page was
// linked, then what its type says anyway, and then the end of the URL.
func failureLine(f client.PageError, typeWidth, width int) line {
	kind := kindOf(f)
	kind += strings.Repeat(" ", typeWidth-columns(kind))
	url, message, linked := Clean(cmp.Or(f.SourceURL, f.URL)), failureMessage(f), ""
	if f.DiscoveredOn != "" {
		linked = "  (linked from " + Clean(f.DiscoveredOn) + ")"
	}
	if room := width - columns("  "+kind+"  "); width > 0 {
		if columns(url+linked+message) > room {
			linked = ""
		}
		if room-columns(message) < urlLeast {
			message = ""
		}
		url = cut(url, max(room-columns(message), 0))
	}
	return line{{text: "  "}, {text: kind, style: red}, {text: "  " + url + linked + message}}
}

// kindOf is the type of an error as it is shown.
func kindOf(f client.PageError) string { return cut(Clean(f.ErrorType), kindMost) }

// failureMessage words what went wrong.
func failureMessage(f client.PageError) string {
	switch {
	case f.Message != "":
		return "  " + Clean(f.Message)
	case f.Status > 0:
		return "  answered " + strconv.Itoa(f.Status)
	default:
		return ""
	}
}
