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
// counts, failed pages by type, skipped ones and refused links by reason, what came of its collection, and
// the first few failed pages. Where w is a terminal no line is longer than it is wide.
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
	for _, block := range summaryBlocks(job, failed, o.Width) {
		for _, l := range block.wrap(o.Width, block.hang) {
			if o.Width > 0 {
				l = l.cut(o.Width) // a word may be too long
			}
			b.WriteString(l.paint(o.Color) + "\n")
		}
	}
	_, _ = io.WriteString(w, b.String()) // a summary that cannot be written has nobody to tell
}

// block is one fact. On a narrow terminal it takes several lines, and is told whole.
type block struct {
	line
	hang int // columns by which all lines but the first are indented
}

// plainBlock is a block of one style.
func plainBlock(hang int, text string) block { return block{plainText(text), hang} }

// Indentations, in columns: of what follows a head, and of what is below a fact.
const (
	headHang = 2
	deepHang = 4
)

// summaryBlocks lays a summary out; width below 1 is no bound.
func summaryBlocks(j *client.Job, failed []client.PageError, width int) []block {
	out := headBlocks(j, width)
	for _, g := range []struct {
		name   string
		look   style
		counts map[string]int64
	}{
		{"failed", red, j.FailedByType},
		{"skipped", unstyled, j.SkippedByReason},
		{"refused", unstyled, j.RefusedByReason},
	} {
		if counts := countList(g.counts); counts != "" {
			out = append(out, namedBlocks(g.name, g.look, counts, width)...)
		}
	}
	if items := collected(j); items != nil {
		for i := range items {
			items[i] = glued(items[i])
		}
		out = append(out, namedBlocks("items", unstyled, strings.Join(items, ", "), width)...)
	}
	if j.Error != "" && !toldBy(failed, j.Error) {
		out = append(out, namedBlocks("error", red, Clean(j.Error), width)...)
	}
	return append(out, failureBlocks(j, failed, width)...)
}

// Collected words what a job did to its collection: in jobs: 12 created, 1 updated, 50
// unchanged. It is "" for a job without one.
func Collected(j *client.Job) string { return strings.Join(collected(j), ", ") }

// collected are the parts of [Collected].
func collected(j *client.Job) (parts []string) {
	r := j.Report
	for _, c := range []struct {
		n    int64
		word string
	}{
		{r.Created, "created"},
		{r.Updated, "updated"},
		{r.Unchanged, "unchanged"},
		{r.Missing, "missing now"},
		{r.NotCollected, "not collected"},
	} {
		if c.n > 0 {
			parts = append(parts, strconv.FormatInt(c.n, 10)+" "+c.word)
		}
	}
	if j.Spec != nil && j.Spec.Collection != nil {
		if parts == nil {
			parts = []string{"none"}
		}
		parts[0] = "in " + Clean(j.Spec.Collection.Name) + ": " + parts[0]
	}
	return parts
}

// toldBy reports whether a failed page that is shown tells the error of the job, which is
// that of its seed then.
func toldBy(failed []client.PageError, fault string) bool {
	return slices.ContainsFunc(failed[:min(len(failed), shownFailures)], func(f client.PageError) bool {
		return f.Message != "" && strings.HasSuffix(fault, f.Message)
	})
}

// namedBlocks are a fact behind its name, or below it where there is no room for both.
func namedBlocks(name string, look style, text string, width int) []block {
	if width > 0 && width < narrowFrom {
		return []block{
			{line{{text: "  " + name, style: look}}, headHang},
			plainBlock(deepHang, strings.Repeat(" ", deepHang)+text),
		}
	}
	label := fmt.Sprintf("  %-9s ", name)
	return []block{{line{{text: label, style: look}, {text: text}}, len(label)}}
}

// headBlocks say what became of the job: in one line, or in more where one is too short or
// there is a reason to tell.
func headBlocks(j *client.Job, width int) []block {
	w := stateWords(j)
	if !j.State.Terminal() {
		w.state = "still " + w.state
	}
	state := line{{text: w.state, style: w.style}}
	when, counts, hint := glued(ran(j)), strings.Join(headCounts(j), " "), ""
	if j.State.Terminal() {
		hint = endHint(j).long
	}
	if hint == "" {
		if when != "" {
			state = append(state, span{text: " " + when})
		}
		one := append(slices.Clone(state), span{text: ": " + counts})
		if width < 1 || one.columns() <= width {
			return []block{{one, headHang}}
		}
		return []block{{state, headHang}, plainBlock(headHang, "  "+counts)}
	}
	sep := "; "
	if j.State == client.Failed {
		sep = ": "
	}
	if when != "" {
		when += ": "
	}
	return []block{{append(state, span{text: sep + hint}), headHang}, plainBlock(headHang, "  "+when+counts)}
}

// ran words how long the job ran.
func ran(j *client.Job) string {
	d, ok := took(j)
	switch {
	case !j.State.Terminal():
		return ""
	case ok && (j.State == client.Completed || j.State == client.CompletedWithErrors):
		return "in " + longDuration(d)
	case ok:
		return "after " + longDuration(d)
	case j.StartedAt.IsZero() && j.State == client.Cancelled:
		return "before it began"
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
		{j.Active, inProgress},
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
	parts = append(parts, "of "+strconv.FormatInt(j.Total, 10)+" "+urls)
	if j.Bytes > 0 {
		parts[len(parts)-1] += ","
		parts = append(parts, byteSize(j.Bytes))
	}
	for i, part := range parts {
		parts[i] = glued(part)
	}
	return parts
}

// countList writes counts by number and then name, no number apart from its name.
func countList(counts map[string]int64) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	var items []string
	for _, name := range names {
		if counts[name] > 0 {
			items = append(items, glued(Clean(name)+" "+strconv.FormatInt(counts[name], 10)))
		}
	}
	return strings.Join(items, ", ")
}

// failureBlocks name the first failed pages.
func failureBlocks(j *client.Job, failed []client.PageError, width int) []block {
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
	out := []block{plainBlock(headHang, title)}
	for _, f := range shown {
		if width > 0 && width < wideFrom {
			out = append(out, narrowFailure(f, width)...)
			continue
		}
		l := failureLine(f, typeWidth, width)
		if width > 0 {
			l = l.cut(width)
		}
		out = append(out, block{line: l})
	}
	return out
}

// narrowFailure is one failed page on a terminal that has no room for it in one line.
func narrowFailure(f client.PageError, width int) []block {
	margin := strings.Repeat(" ", deepHang)
	out := []block{
		{line{{text: "  "}, {text: kindOf(f), style: red}}, deepHang},
		plainBlock(deepHang, cut(margin+Clean(cmp.Or(f.SourceURL, f.URL)), width)),
	}
	if message := strings.TrimSpace(failureMessage(f)); message != "" {
		out = append(out, plainBlock(deepHang, margin+message))
	}
	if f.DiscoveredOn != "" {
		out = append(out, plainBlock(deepHang, cut(margin+"linked from "+Clean(f.DiscoveredOn), width)))
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
