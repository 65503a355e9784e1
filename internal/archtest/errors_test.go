//go:build !race

package archtest

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// TestEveryStatusIsDocumented looks for the gRPC and HTTP statuses that the
// server's packages answer with.
func TestEveryStatusIsDocumented(t *testing.T) {
	root := moduleRoot(t)
	docs, err := os.ReadFile(filepath.Join(root, "docs", "reference", "errors.md"))
	if err != nil {
		t.Fatal(err)
	}
	numbers := map[string]int{}
	for code := 100; code < 600; code++ {
		numbers[strings.NewReplacer(" ", "", "-", "").Replace(http.StatusText(code))] = code
	}
	grpcCode, httpCode := regexp.MustCompile(`\bcodes\.([A-Z][A-Za-z]+)\b`), regexp.MustCompile(`\bhttp\.Status([A-Z][A-Za-z]+)\b`)
	found := 0
	expect := func(what, in string) {
		found++
		if !strings.Contains(string(docs), what) {
			t.Errorf("docs/reference/errors.md does not have %s of %s", what, in)
		}
	}
	for _, pkg := range []string{"xds", "xds/csds", "xds/resource", "lrs", "lrs/reader", "hds", "hds/convert", "rpc", "listen", "member", "server", "admin"} {
		for name, data := range filesOf(t, filepath.Join(root, "internal", pkg, "*.go")) {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			for _, m := range grpcCode.FindAllStringSubmatch(string(data), -1) {
				if m[1] != "Code" && m[1] != "OK" {
					expect("`"+upperSnake(m[1])+"`", name)
				}
			}
			for _, m := range httpCode.FindAllStringSubmatch(string(data), -1) {
				if n := numbers[m[1]]; n >= http.StatusBadRequest {
					expect("| "+strconv.Itoa(n), name)
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d statuses found: has the code changed its form? Mend this test", found)
	}
}

func upperSnake(camel string) string {
	var b strings.Builder
	for i, r := range camel {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToUpper(r))
	}
	return b.String()
}
