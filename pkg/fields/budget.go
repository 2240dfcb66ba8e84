package fields

import "errors"

// MaxSteps is what running a program on one page may take. A step is about one node looked at, 16
// bytes of text read or two instructions of a regular expression: 10 to 50 ns, so that the worst
// page takes about a second. Ten usual fields on a page of 60 KB take some 20,000. One field takes
// at most a quarter of what the fields before it left, so that a costly one does not starve them.
const MaxSteps = 1 << 25

// What is done in the time of a step.
const (
	bytesPerStep        = 16 // of text read
	instructionsPerStep = 2  // of a regular expression, for each byte of the text
)

// errSteps stops the field that there are no steps left for.
var errSteps = errors.New("the field takes too many steps on this page")

// errFull ends a rendering of HTML that is long enough.
var errFull = errors.New("the value is as long as one may be")

// budget is what is left of [MaxSteps].
type budget struct{ left, reserved int }

// share begins a field: it may take a quarter of what is left.
func (b *budget) share() { b.reserved = b.left - b.left/4 }

// spend takes n steps, and reports whether they were left. What would take too many takes none.
func (b *budget) spend(n int) bool {
	if n > b.left-b.reserved {
		return false
	}
	b.left -= n
	return true
}
