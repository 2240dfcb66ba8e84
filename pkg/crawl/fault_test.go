package crawl

import (
	"errors"
	"fmt"
	"testing"
)

func TestCodeOf(t *testing.T) {
	t.Parallel()
	fault := Faultf(CodeTimeout, "no answer in %d s", 10)
	for _, tt := range []struct {
		name string
		err  error
		want Code
	}{
		{"nil", nil, ""},
		{"fault", fault, CodeTimeout},
		{"wrapped", fmt.Errorf("fetch: %w", fault), CodeTimeout},
		{"joined", errors.Join(errors.New("x"), fault), CodeTimeout},
		{"outer first", &Fault{Code: CodeUnavailable, Err: fault}, CodeUnavailable},
		{"defect", errors.New("x"), CodeInternal},
	} {
		if got := CodeOf(tt.err); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	if got := HTTPCode(404); got != "http_404" {
		t.Errorf("got %q", got)
	}
}

func TestFaultError(t *testing.T) {
	t.Parallel()
	cause := errors.New("dial tcp: refused")
	f := &Fault{
		Code: CodeInvalid, Message: "mend it", Err: cause,
		Fields: []FieldFault{{Field: "urls[3]", Rule: "scheme", Message: "only http"}},
	}
	if got, want := f.Error(), "invalid: mend it; urls[3]: only http: dial tcp: refused"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.Is(f, cause) {
		t.Error("the cause is lost")
	}
	if got := (&Fault{Code: CodeDNS}).Error(); got != "dns" {
		t.Errorf("got %q", got)
	}
}
