package fields

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of what is read as a number. What is longer is a text with a number in it.
const (
	maxNumberBytes = 256
	maxDigits      = 64
)

// parseNumber reads the one number that text holds, and returns it as JSON writes it: without
// zeros at its ends, all digits kept.
//
// Signs of currencies, units, percent signs and words around the number are dropped: "€ 1.234,50"
// is 1234.5, "12 %" is 12. It is multiplied by a k, K, 万, 千 or 亿 that touches it, and by a word
// such as million or lakh behind it. Refused is what could be something else: two numbers
// ("10-20", "1/2"), a grouping that the locale does not have ("1,23" in English), digits that are
// part of a word ("A4"), a multiplier that could be a unit ("12M", "5 k"), and without a locale
// "1,234" and "1.234". A minus (also U+2212) must touch the number or its currency.
func parseNumber(text string, in *locale) (string, bool) {
	if len(text) > maxNumberBytes {
		return "", false
	}
	s := normalise(text)
	if number, ok := scientific(s); ok {
		return number, true
	}
	first := strings.IndexAny(s, "0123456789")
	if first < 0 {
		return "", false
	}
	if first > 0 && (s[first-1] == '.' || s[first-1] == ',') && startsDecimal(s, first, in) {
		first--
	}
	number, rest, ok := readNumber(s[first:], in)
	if !ok {
		return "", false
	}
	negative, ok := readPrefix(s[:first])
	if !ok {
		return "", false
	}
	shift, ok := readSuffix(rest, in)
	if !ok {
		return "", false
	}
	return number.json(negative, shift)
}

// startsDecimal reports whether the sign before the first digit begins a number: .5 and not v.5.
func startsDecimal(s string, first int, in *locale) bool {
	if strings.IndexByte(in.point, s[first-1]) < 0 {
		return false
	}
	return first == 1 || strings.IndexByte(" -+$", s[first-2]) >= 0
}

// normalise writes digits and signs of all scripts in ASCII, and a run of spaces as one.
func normalise(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r < utf8.RuneSelf && r > ' ':
			b.WriteRune(r)
		case unicode.IsSpace(r):
			if s := b.String(); s != "" && s[len(s)-1] != ' ' {
				b.WriteByte(' ')
			}
		case isWidthless(r) || r == '\u200E' || r == '\u200F' || r == '\u061C': // marks of direction
		case unicode.Is(unicode.Nd, r):
			b.WriteByte('0' + digitOf(r))
		default:
			if sign, ok := signs[r]; ok {
				b.WriteByte(sign)
			} else {
				b.WriteRune(r)
			}
		}
	}
	return strings.TrimSuffix(b.String(), " ")
}

// signs of other scripts, and those that look like the ones of ASCII.
var signs = map[rune]byte{
	'\u2212': '-', '\uFF0D': '-', '\u2010': '-', '\u2011': '-', '\u2013': '-', '\uFE63': '-',
	'\uFF0B': '+', '\uFF0E': '.', '\uFF0C': ',', '\u066B': '.', '\u066C': ',', '\u2019': '\'', '\uFF07': '\'',
	'\uFF05': '%', '\u066A': '%', '\uFF04': '$', '\uFF08': '(', '\uFF09': ')', '\uFF1A': ':', '\uFF0F': '/',
}

// digitOf is the value of a decimal digit: they come in runs of ten.
func digitOf(r rune) byte {
	for _, t := range unicode.Nd.R16 {
		if rune(t.Lo) <= r && r <= rune(t.Hi) {
			return byte((r - rune(t.Lo)) % 10)
		}
	}
	for _, t := range unicode.Nd.R32 {
		if rune(t.Lo) <= r && r <= rune(t.Hi) {
			return byte((r - rune(t.Lo)) % 10)
		}
	}
	return 0
}

// decimal is a number as digits before and behind the point.
type decimal struct{ whole, fraction string }

// json writes the number multiplied by ten to the power of shift.
func (d decimal) json(negative bool, shift int) (string, bool) {
	fraction := d.fraction
	for len(fraction) < shift {
		fraction += "0"
	}
	whole := strings.TrimLeft(d.whole+fraction[:shift], "0")
	fraction = strings.TrimRight(fraction[shift:], "0")
	if len(whole)+len(fraction) > maxDigits {
		return "", false
	}
	if whole == "" {
		whole = "0"
	}
	if fraction != "" {
		whole += "." + fraction
	}
	if negative && whole != "0" {
		whole = "-" + whole
	}
	return whole, true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func digits(s string) int {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return n
}

// scientific reads what machines write: 1.5e3, and nothing around it.
func scientific(s string) (string, bool) {
	mantissa, exponent, ok := strings.Cut(strings.ToLower(s), "e")
	negative := strings.HasPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(strings.TrimLeft(mantissa, "+-"), ".")
	exponent = strings.TrimPrefix(exponent, "+")
	below := strings.HasPrefix(exponent, "-")
	exponent = strings.TrimPrefix(exponent, "-")
	if !ok || whole == "" || exponent == "" || len(exponent) > 2 || len(mantissa)-len(whole)-len(fraction) > 2 ||
		digits(whole) < len(whole) || digits(fraction) < len(fraction) || digits(exponent) < len(exponent) {
		return "", false
	}
	shift := 0
	for _, c := range []byte(exponent) {
		shift = 10*shift + int(c-'0')
	}
	if !below {
		return decimal{whole, fraction}.json(negative, shift)
	}
	if shift > maxDigits {
		return "", false
	}
	whole = strings.Repeat("0", shift) + whole
	at := len(whole) - shift
	return decimal{whole[:at], whole[at:] + fraction}.json(negative, 0)
}

// readNumber reads the number that s begins with, and all that could belong to it.
func readNumber(s string, in *locale) (d decimal, rest string, ok bool) {
	var parts []string
	var seps []byte
	for {
		n := digits(s)
		parts = append(parts, s[:n])
		s = s[n:]
		if len(s) < 2 || strings.IndexByte(in.group+in.point, s[0]) < 0 || !isDigit(s[1]) {
			break
		}
		seps = append(seps, s[0])
		s = s[1:]
		if len(seps) > maxDigits {
			return d, "", false
		}
	}
	switch {
	case len(seps) == 0:
		return decimal{whole: parts[0]}, s, true
	case in.auto:
		d, ok = autoNumber(parts, seps)
	default:
		d, ok = localNumber(parts, seps, in)
	}
	return d, s, ok
}

// localNumber reads groups and decimals as the locale writes them.
func localNumber(parts []string, seps []byte, in *locale) (decimal, bool) {
	var d decimal
	last := len(seps) - 1
	groups := parts
	if strings.IndexByte(in.point, seps[last]) >= 0 {
		d.fraction = parts[last+1]
		groups, seps = parts[:last+1], seps[:last]
	}
	if len(seps) > 0 && (strings.IndexByte(in.group, seps[0]) < 0 || !alike(seps)) {
		return d, false
	}
	d.whole = strings.Join(groups, "")
	return d, len(groups) == 1 || grouped(groups, 3) || (in.indian && grouped(groups, 2))
}

// autoNumber reads what means the same in each locale: two signs ("1.234,5"), one that is there
// twice ("1,234,567"), or one that no group of three can follow ("12.50").
func autoNumber(parts []string, seps []byte) (decimal, bool) {
	last := len(seps) - 1
	point := seps[last]
	if point == '\'' { // always between thousands
		return decimal{whole: strings.Join(parts, "")}, alike(seps) && grouped(parts, 3)
	}
	if last == 0 {
		ambiguous := len(parts[1]) == 3 && len(parts[0]) <= 3 && parts[0] != "" && parts[0] != "0"
		return decimal{whole: parts[0], fraction: parts[1]}, !ambiguous
	}
	if alike(seps) {
		return decimal{whole: strings.Join(parts, "")}, grouped(parts, 3)
	}
	groups := parts[:last+1]
	d := decimal{whole: strings.Join(groups, ""), fraction: parts[last+1]}
	return d, alike(seps[:last]) && seps[0] != point && grouped(groups, 3)
}

func alike(seps []byte) bool {
	for _, c := range seps {
		if c != seps[0] {
			return false
		}
	}
	return true
}

// grouped reports whether all groups but the first and the last have so many digits, the last one
// three and the first one no more than so many.
func grouped(groups []string, most int) bool {
	last := len(groups) - 1
	for i, g := range groups {
		switch {
		case i == 0 && (g == "" || len(g) > most):
			return false
		case i == last && len(g) != 3:
			return false
		case i > 0 && i < last && len(g) != most:
			return false
		}
	}
	return true
}

// currencies are what may touch a number from before, beside the signs of currencies.
var currencies = []string{
	"EUR", "USD", "GBP", "CHF", "JPY", "CNY", "RMB", "INR", "AUD", "CAD", "NZD", "HKD", "SGD", "TWD", "KRW", "SEK",
	"NOK", "DKK", "PLN", "CZK", "HUF", "RUB", "TRY", "BRL", "MXN", "ZAR", "AED", "SAR", "THB", "IDR", "ILS", "Rs", "Rs.",
	"US", "A", "C", "R", "HK", "NZ", "S", "kr", "Fr", "Fr.", "No.",
}

// below are words that make a number negative. They are refused, and not understood.
var below = []string{"minus", "negative", "below", "moins", "menos", "meno ", "负", "負", "零下", "마이너스", "минус"}

// readPrefix judges what stands before a number, and finds its minus.
func readPrefix(s string) (negative, ok bool) {
	if strings.ContainsFunc(s, func(r rune) bool { return unicode.Is(unicode.No, r) }) {
		return false, false
	}
	if slices.ContainsFunc(below, func(word string) bool { return strings.Contains(strings.ToLower(s), word) }) {
		return false, false
	}
	s = strings.TrimSuffix(s, "(")
	touching := s // with the number, but for its currency
	s = trimCurrency(s)
	sign := byte(0)
	if n := len(s); n > 0 && (s[n-1] == '-' || s[n-1] == '+') {
		sign = s[n-1]
		s = s[:n-1]
	}
	if sign == 0 {
		r, _ := utf8.DecodeLastRuneInString(s)
		word := len(touching) > 0 && len(s) == len(touching) && (unicode.IsLetter(r) || r == '_') && !isIdeograph(r)
		return false, !word && !endsNumber(s)
	}
	// "Price - 12" and "Price - € 12": a dash with blanks around it separates.
	if strings.TrimSpace(s) != "" && strings.HasPrefix(touching[len(s)+1:], " ") {
		return false, false
	}
	if before := trimCurrency(s); before != strings.TrimRight(s, " ") { // "$-5"
		s = before
	}
	r, _ := utf8.DecodeLastRuneInString(s)
	if s != "" && r != ' ' && r != ':' && r != '(' && r != '=' {
		return false, false // a hyphen, as in SKU-12, or two signs
	}
	return sign == '-', true
}

// endsNumber reports whether the sign before a number makes it a part of something else.
func endsNumber(s string) bool {
	return s != "" && strings.IndexByte("/*^×~<>", s[len(s)-1]) >= 0
}

func isIdeograph(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul)
}

// trimCurrency removes a currency, and the blanks around it, from the end of s.
func trimCurrency(s string) string {
	t := strings.TrimRight(s, " ")
	r, n := utf8.DecodeLastRuneInString(t)
	if unicode.Is(unicode.Sc, r) {
		t = t[:len(t)-n]
		for _, c := range currencies {
			if strings.HasSuffix(t, c) && wordBegins(t, len(t)-len(c)) {
				return strings.TrimRight(t[:len(t)-len(c)], " ")
			}
		}
		return strings.TrimRight(t, " ")
	}
	for _, c := range currencies {
		if len(c) > 1 && strings.HasSuffix(t, c) && wordBegins(t, len(t)-len(c)) {
			return strings.TrimRight(t[:len(t)-len(c)], " ")
		}
	}
	return t
}

// wordBegins reports whether no letter stands before place i.
func wordBegins(s string, i int) bool {
	r, _ := utf8.DecodeLastRuneInString(s[:i])
	return !unicode.IsLetter(r) && !unicode.IsDigit(r)
}

// multipliers are the words behind a number that multiply it, as powers of ten.
var multipliers = map[string]int{
	"thousand": 3, "tausend": 3, "tsd": 3, "million": 6, "millions": 6, "millionen": 6, "mio": 6, "mln": 6,
	"millones": 6, "milioni": 6, "milliard": 9, "milliards": 9, "milliarden": 9, "milliarde": 9, "mrd": 9, "lakh": 5,
	"lakhs": 5,
	"lac":   5, "crore": 7, "crores": 7, "тыс": 3, "тысяч": 3, "тысячи": 3, "tys": 3, "mila": 3, "млн": 6, "млрд": 9,
}

// unclear are words behind a number that multiply it by nobody knows how much.
var unclear = []string{
	"k", "m", "mm", "mil", "mille", "b", "bn", "t", "trillion", "trillions", "billionen", "dozen", "hundred",
	"hundreds", "million+", "cr", "md", "tn",
}

// touchingPowers are the signs that multiply the number that they touch.
var touchingPowers = []struct {
	sign  string
	power int
}{
	{"万亿", 12},
	{"萬億", 12},
	{"百万", 6},
	{"千万", 7},
	{"k", 3},
	{"K", 3},
	{"千", 3},
	{"百", 2},
	{"천", 3},
	{"백", 2},
	{"万", 4},
	{"萬", 4},
	{"亿", 8},
	{"億", 8},
	{"만", 4},
	{"억", 8},
}

// readSuffix judges what stands behind a number, and finds by which power of ten it is multiplied.
func readSuffix(s string, in *locale) (shift int, ok bool) {
	s, ok = trimNoDecimals(s)
	if !ok {
		return 0, false
	}
	for _, t := range touchingPowers {
		if rest, found := strings.CutPrefix(s, t.sign); found && wordEnds(rest) {
			return t.power, plainSuffix(rest)
		}
	}
	if s != "" && (s[0] == 'M' || s[0] == 'm' || s[0] == 'B') && wordEnds(s[1:]) && s[0] != 'm' {
		return 0, false
	}
	word, rest := nextWord(strings.TrimLeft(s, " "))
	lower := strings.ToLower(word)
	if power, found := multipliers[lower]; found {
		return power, plainSuffix(rest)
	}
	if lower == "billion" || lower == "billions" { // 10^9, and 10^12 on the continent
		english := in == locales["en"] || in == locales["us"] || in == locales["gb"] || in == locales["in"]
		return 9, english && plainSuffix(rest)
	}
	if slices.Contains(unclear, lower) && (lower != "m" || word == "M") && (lower != "mm" || word == "MM") &&
		(lower != "t" || word == "T") {
		return 0, false
	}
	return 0, plainSuffix(s)
}

// trimNoDecimals removes ",-" and ".–", which say that there are no cents, and refuses what would
// make another thing of the number.
func trimNoDecimals(s string) (string, bool) {
	if len(s) > 1 && (s[0] == ',' || s[0] == '.') && (s[1] == '-' || strings.HasPrefix(s[1:], "—")) {
		return strings.TrimLeft(s[1:], "-—"), true
	}
	if s == "" {
		return s, true
	}
	r, _ := utf8.DecodeRuneInString(s)
	return s, strings.IndexByte("-/*^:'_", s[0]) < 0 && !unicode.Is(unicode.No, r)
}

// wordEnds reports whether s does not go on with a letter that is no ideograph.
func wordEnds(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return !unicode.IsLetter(r) || isIdeograph(r)
}

func nextWord(s string) (word, rest string) {
	for i, r := range s {
		if !unicode.IsLetter(r) && r != '+' {
			return s[:i], s[i:]
		}
	}
	return s, ""
}

// powered are the units that a 2 or a 3 may end.
var powered = []string{"m", "mm", "cm", "dm", "km", "ft", "in", "yd", "mi", "co"}

// plainSuffix reports whether s holds no other number. The 2 of m2 and CO2 is none; the 30 of
// 12h30 is one.
func plainSuffix(s string) bool {
	word := 0 // where the word begins that stands before
	for i, r := range s {
		if unicode.IsLetter(r) {
			continue
		}
		if unicode.Is(unicode.No, r) || r < utf8.RuneSelf && isDigit(byte(r)) {
			n := utf8.RuneLen(r)
			power := r == '2' || r == '3' || r == '²' || r == '³'
			ends := wordEnds(s[i+n:]) && (i+n == len(s) || !isDigit(s[i+n]))
			if !power || !ends || !slices.Contains(powered, strings.ToLower(s[word:i])) {
				return false
			}
		}
		word = i + utf8.RuneLen(r)
	}
	return true
}
