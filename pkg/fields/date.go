package fields

import (
	"strings"
	"time"
	"unicode"
)

// maxDateBytes bounds what is read as a date. What is longer is a text with a date in it.
const maxDateBytes = 128

// parseDate reads a date, with or without time, and returns it by RFC 3339: 2024-03-03, or
// 2024-03-03T10:30:00+01:00. A time without a zone is taken as UTC, a fraction of a second is kept.
//
// It reads ISO 8601 and RFC 3339, the forms of RFC 5322 and HTTP, dates with the name of the
// month in the languages of monthNames ("3 March 2024", "March 3rd, 2024", "3. März 2024"), those
// with dots ("03.03.2024", always day first), with slashes or hyphens (in the order of the locale;
// without one only where both orders give the same or one is impossible), and "2024年3月3日". A
// weekday and a label such as "Published:" may stand before it. Everything must be understood:
// relative words, years of two digits and dates without a day are refused.
func parseDate(text string, in *locale) (string, bool) {
	if len(text) > maxDateBytes {
		return "", false
	}
	p := dateParser{tokens: dateTokens(normalise(text)), in: in}
	p.label()
	if !p.date() {
		return "", false
	}
	p.time()
	if p.failed || p.i != len(p.tokens) {
		return "", false
	}
	return p.format()
}

// dateToken is a number, a word in lower case, or a sign.
type dateToken struct {
	kind  byte // 'n', 'w', 's'
	text  string
	value int
	space bool // a blank stands before it
}

func dateTokens(s string) []dateToken {
	var out []dateToken
	space := false
	for s != "" {
		if s[0] == ' ' {
			space, s = true, s[1:]
			continue
		}
		t := dateToken{kind: 's', space: space}
		space = false
		n := digits(s)
		switch {
		case n > 0:
			t.kind = 'n'
			for _, c := range []byte(s[:min(n, 9)]) {
				t.value = 10*t.value + int(c-'0')
			}
		default:
			n, t.kind = wordLength(s)
		}
		t.text = strings.ToLower(s[:n])
		out = append(out, t)
		s = s[n:]
	}
	return out
}

// wordLength returns how long the word or the sign is that s begins with. A sign of East Asia is a
// word of its own.
func wordLength(s string) (int, byte) {
	end := 0
	for i, r := range s {
		if isIdeograph(r) {
			if i == 0 {
				return len(string(r)), 'w'
			}
			return i, 'w'
		}
		if !unicode.IsLetter(r) && !unicode.Is(unicode.Mn, r) {
			if i == 0 {
				return len(string(r)), 's'
			}
			return i, 'w'
		}
		end = i + len(string(r))
	}
	return min(end, len(s)), 'w'
}

type dateParser struct {
	tokens []dateToken
	i      int
	in     *locale
	failed bool

	year, month, day     int
	hour, minute, second int
	fraction             string
	hasTime              bool
	zone                 string // "", "Z" or +hh:mm
}

// at returns the token that is k further, or one that is nothing.
func (p *dateParser) at(k int) dateToken {
	if p.i+k < len(p.tokens) {
		return p.tokens[p.i+k]
	}
	return dateToken{}
}

func (p *dateParser) number(k int) bool { return p.at(k).kind == 'n' }

func (p *dateParser) is(k int, texts ...string) bool {
	for _, t := range texts {
		if p.at(k).text == t {
			return true
		}
	}
	return false
}

func (p *dateParser) skip(texts ...string) bool {
	if p.i < len(p.tokens) && p.is(0, texts...) {
		p.i++
		return true
	}
	return false
}

// dateLabels are words that may stand before a date and change nothing about it.
var dateLabels = []string{
	"on", "published", "posted", "updated", "modified", "created", "date", "am", "vom", "le", "el", "il", "den",
	"publié", "der",
	"veröffentlicht", "publicado", "last", "at", "the",
}

// label moves behind words before the date: those of dateLabels, any that end with a colon, and a
// weekday.
func (p *dateParser) label() {
	for k := 0; k < len(p.tokens) && p.tokens[k].kind == 'w'; k++ {
		if k+1 < len(p.tokens) && p.tokens[k+1].text == ":" {
			p.i = k + 2
			break
		}
	}
	for p.skip(dateLabels...) {
	}
	if p.at(0).kind == 'w' && weekdays[p.at(0).text] {
		p.i++
		for p.skip(",", ".") {
		}
	}
	p.skip("the", "den", "dem", "le")
}

// date reads year, month and day in one of their forms.
func (p *dateParser) date() bool {
	switch {
	case p.number(0) && len(p.at(0).text) == 8 && p.i+1 == len(p.tokens):
		v := p.at(0).value
		p.year, p.month, p.day = v/10000, v/100%100, v%100
		p.i++
	case p.number(0) && p.is(1, "年", "년"):
		if !p.eastAsian() {
			return false
		}
	case p.threeNumbers() && len(p.at(0).text) == 4:
		p.year, p.month, p.day = p.at(0).value, p.at(2).value, p.at(4).value
		p.i += 5
	case p.threeNumbers():
		if !p.numeric() {
			return false
		}
	case p.number(0):
		if !p.dayMonthYear() {
			return false
		}
	default:
		if !p.monthDayYear() {
			return false
		}
	}
	return p.valid()
}

// threeNumbers reports whether three numbers stand here, with the same sign between them.
func (p *dateParser) threeNumbers() bool {
	return p.number(0) && p.is(1, "-", "/", ".") && p.number(2) && p.is(3, p.at(1).text) && p.number(4)
}

func (p *dateParser) eastAsian() bool {
	if !p.number(2) || !p.is(3, "月", "월") || !p.number(4) || !p.is(5, "日", "일", "号") || len(p.at(0).text) != 4 {
		return false
	}
	p.year, p.month, p.day = p.at(0).value, p.at(2).value, p.at(4).value
	p.i += 6
	if p.is(0, "(") && p.is(2, ")") && p.at(1).kind == 'w' { // the weekday
		p.i += 3
	}
	return true
}

// numeric reads three numbers with the year at the end.
func (p *dateParser) numeric() bool {
	a, b, year := p.at(0), p.at(2), p.at(4)
	if len(year.text) != 4 || len(a.text) > 2 || len(b.text) > 2 {
		return false
	}
	order := p.in.order
	switch {
	case p.is(1, "."):
		order = dayFirst
	case order == dayUnknown && (a.value > 12 || a.value == b.value):
		order = dayFirst
	case order == dayUnknown && b.value > 12:
		order = monthFirst
	}
	switch order {
	case dayFirst:
		p.day, p.month = a.value, b.value
	case monthFirst:
		p.month, p.day = a.value, b.value
	case dayUnknown:
		return false
	}
	p.year = year.value
	p.i += 5
	return true
}

var ordinals = []string{"st", "nd", "rd", "th", "er", "re", "e", "º", "ª", "o"}

// dayMonthYear reads "3rd of March, 2024", "3. März 2024" and "03-Mar-2024".
func (p *dateParser) dayMonthYear() bool {
	if len(p.at(0).text) > 2 {
		return false
	}
	p.day = p.at(0).value
	p.i++
	if !p.at(0).space {
		p.skip(ordinals...)
	}
	p.skip(".", "-", "/")
	p.skip("of", "de", "di", "-")
	if !p.name() {
		return false
	}
	p.skip(".", "-", "/")
	p.skip(",", "de", "del", "of")
	return p.yearNumber()
}

// monthDayYear reads "March 3rd, 2024".
func (p *dateParser) monthDayYear() bool {
	if !p.name() {
		return false
	}
	p.skip(".")
	if !p.number(0) || len(p.at(0).text) > 2 {
		return false
	}
	p.day = p.at(0).value
	p.i++
	if !p.at(0).space {
		p.skip(ordinals...)
	}
	if p.clock() { // as asctime writes it: Mar 3 10:30:00 2024
		p.time()
		return !p.failed && p.hasTime && p.zone == "" && p.yearNumber()
	}
	p.skip(",", ".")
	return p.yearNumber()
}

func (p *dateParser) name() bool {
	month, ok := monthNames[p.at(0).text]
	if !ok || p.at(0).kind != 'w' {
		return false
	}
	p.month = month
	p.i++
	return true
}

func (p *dateParser) yearNumber() bool {
	if !p.number(0) || len(p.at(0).text) != 4 {
		return false
	}
	p.year = p.at(0).value
	p.i++
	p.skip("г")
	return true
}

// valid reports whether there is such a day. Years before 1000 are mistakes.
func (p *dateParser) valid() bool {
	if p.year < 1000 || p.month < 1 || p.month > 12 || p.day < 1 {
		return false
	}
	return p.day <= time.Date(p.year, time.Month(p.month)+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// clock reports whether a time begins here.
func (p *dateParser) clock() bool {
	return p.number(0) && len(p.at(0).text) <= 2 && p.is(1, ":", "h", "时", "點", "点", "시", "am", "pm")
}

// time reads the time, if there is one, and its zone.
func (p *dateParser) time() {
	if p.i == len(p.tokens) || p.hasTime {
		return
	}
	if p.skip("t") || p.skip(",") || p.skip("at") || p.skip("um") || p.skip("à") || p.skip("-") || p.skip("|") {
		p.skip("at", "um", "à")
	}
	meridiem := p.meridiem()
	if !p.clock() {
		p.failed = true
		return
	}
	p.hasTime = true
	p.hour = p.at(0).value
	p.i++
	if !p.is(0, "am", "pm") {
		p.i++
		p.minutes()
	}
	if meridiem == "" {
		meridiem = p.meridiem()
	}
	p.twelve(meridiem)
	p.skip("uhr", "h")
	p.offset()
	if p.hour > 23 || p.minute > 59 || p.second > 59 {
		p.failed = true
	}
}

func (p *dateParser) minutes() {
	if !p.number(0) || len(p.at(0).text) != 2 {
		// 10h, and 10时 of the clock of East Asia, are whole hours.
		p.failed = p.tokens[p.i-1].text == ":"
		return
	}
	p.minute = p.at(0).value
	p.i++
	p.skip("分", "분")
	if p.is(0, ":") && p.number(1) && len(p.at(1).text) == 2 {
		p.second = p.at(1).value
		p.i += 2
	} else if p.number(0) && p.is(1, "秒", "초") {
		p.second = p.at(0).value
		p.i += 2
	}
	if p.is(0, ".", ",") && p.number(1) && !p.at(1).space && len(p.at(1).text) <= 9 {
		p.fraction = strings.TrimRight(p.at(1).text, "0")
		p.i += 2
	}
}

// meridiem reads am or pm in their spellings.
func (p *dateParser) meridiem() string {
	switch {
	case p.skip("am"), p.pair("上", "午"), p.pair("오", "전"):
		return "am"
	case p.skip("pm"), p.pair("下", "午"), p.pair("오", "후"):
		return "pm"
	case p.is(0, "a", "p") && p.is(1, ".") && p.is(2, "m"):
		word := p.at(0).text + "m"
		p.i += 3
		p.skip(".")
		return word
	}
	return ""
}

// pair moves behind two words, and reports whether they are there.
func (p *dateParser) pair(first, second string) bool {
	if !p.is(0, first) || !p.is(1, second) {
		return false
	}
	p.i += 2
	return true
}

func (p *dateParser) twelve(meridiem string) {
	if meridiem == "" {
		return
	}
	if p.hour < 1 || p.hour > 12 {
		p.failed = true
	}
	p.hour %= 12
	if meridiem == "pm" {
		p.hour += 12
	}
}

// offset reads a zone: Z, UTC, +01:00, +0100, +01, or a name that means one offset only.
func (p *dateParser) offset() {
	open := p.skip("(")
	if p.at(0).kind == 'w' {
		zone, ok := zones[p.at(0).text]
		if !ok {
			return // what is not understood is left, and refused
		}
		p.zone = zone
		p.i++
	}
	if p.is(0, "+", "-") && p.number(1) && (p.zone == "" || p.zone == "Z") {
		p.numericOffset()
	}
	if open && !p.skip(")") {
		p.failed = true
	}
	// Mail repeats the zone as a comment: +0100 (CET).
	if p.zone != "" && p.is(0, "(") && p.at(1).kind == 'w' && p.is(2, ")") {
		p.i += 3
	}
}

func (p *dateParser) numericOffset() {
	sign, n := p.at(0).text, p.at(1)
	p.i += 2
	hours, minutes := n.value, 0
	switch {
	case len(n.text) == 4:
		hours, minutes = n.value/100, n.value%100
	case len(n.text) > 2:
		p.failed = true
	case p.is(0, ":") && p.number(1) && len(p.at(1).text) == 2:
		minutes = p.at(1).value
		p.i += 2
	}
	if hours > 14 || minutes > 59 {
		p.failed = true
	}
	p.zone = "Z"
	if hours+minutes > 0 {
		p.zone = sign + twoDigits(hours) + ":" + twoDigits(minutes)
	}
}

func twoDigits(n int) string { return string([]byte{byte('0' + n/10%10), byte('0' + n%10)}) }

func (p *dateParser) format() (string, bool) {
	s := twoDigits(p.year/100) + twoDigits(p.year%100) + "-" + twoDigits(p.month) + "-" + twoDigits(p.day)
	if !p.hasTime {
		return s, true
	}
	s += "T" + twoDigits(p.hour) + ":" + twoDigits(p.minute) + ":" + twoDigits(p.second)
	if p.fraction != "" {
		s += "." + p.fraction
	}
	if p.zone == "" {
		return s + "Z", true
	}
	return s + p.zone, true
}
