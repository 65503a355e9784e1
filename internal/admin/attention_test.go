package admin_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/admin"
)

// TestEveryCodeIsListed: the reference page has each code with its severity and its
// meaning, in the order of the code, and no other.
func TestEveryCodeIsListed(t *testing.T) {
	data, err := os.ReadFile("../../docs/reference/attention.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(data), "| Code | Severity | Meaning |\n|---|---|---|\n")
	if !found {
		t.Fatal("docs/reference/attention.md has no table of codes")
	}
	var want strings.Builder
	seen := map[admin.Code]bool{}
	for _, c := range admin.Codes() {
		if seen[c.Code] {
			t.Errorf("%s is listed twice", c.Code)
		}
		seen[c.Code] = true
		fmt.Fprintf(&want, "| `%s` | %s | %s |\n", c.Code, c.Severity, c.Meaning)
	}
	if table != want.String() {
		t.Errorf("the table of codes in docs/reference/attention.md should be\n%s", want.String())
	}
}

// TestAttentionIsOrdered: the most severe comes first, whoever told of it, notices
// change nothing about order, and what is too much to read is counted.
func TestAttentionIsOrdered(t *testing.T) {
	ask := func(items ...admin.Attention) (s admin.Status) {
		srv := start(t, newWorld(), func(o *admin.Options) {
			o.Clients = func() []admin.Client { return nil }
			o.Attention = func() []admin.Attention { return items }
		})
		do(t, srv, http.MethodGet, "/v1/status", "").decode(t, &s)
		return s
	}
	notice := admin.NewAttention(admin.ServicePaused, "n")
	if s := ask(notice); !s.OK || len(s.Attention) != 1 {
		t.Errorf("a notice alone: %+v", s.Attention)
	}
	warning, critical := admin.NewAttention(admin.NoLoad, "w"), admin.NewAttention(admin.RequestsFailing, "c")
	s := ask(notice, warning, critical)
	if got := admin.AttentionTexts(s.Attention); s.OK || !slices.Equal(got, []string{"c", "w", "n"}) {
		t.Errorf("got %q", got)
	}
	if s := ask(slices.Repeat([]admin.Attention{warning}, 130)...); len(s.Attention) != 100 || s.More != 30 {
		t.Errorf("%d are listed, %d more", len(s.Attention), s.More)
	}
}

// TestCommandsAreSafeToPaste: what strangers call themselves stays one word.
func TestCommandsAreSafeToPaste(t *testing.T) {
	for word, want := range map[string]string{
		"checkout": "checkout", "us-east/b": "us-east/b", "$(reboot)": "'$(reboot)'", "a'b; c": `'a'\''b; c'`, "-o": "'-o'", "": "''", "a\nb": "'a b'",
	} {
		if got := admin.NewAttention(admin.NoLoad, "x").See("isobar explain %s", word).Next; got != "isobar explain "+want {
			t.Errorf("%q: %s", word, got)
		}
	}
}
