package checker

import (
	"errors"
	"regexp"
	"strings"

	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// mostRegex bounds a pattern; Go's regular expressions run in linear time.
const mostRegex = 1024

// newMatcher turns a StringMatcher into a function.
func newMatcher(m *matcherv3.StringMatcher) (func(string) bool, error) {
	fold := func(s string) string { return s }
	if m.GetIgnoreCase() {
		fold = strings.ToLower
	}
	switch kind := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		want := fold(kind.Exact)
		return func(s string) bool { return fold(s) == want }, nil
	case *matcherv3.StringMatcher_Prefix:
		want := fold(kind.Prefix)
		return func(s string) bool { return strings.HasPrefix(fold(s), want) }, nil
	case *matcherv3.StringMatcher_Suffix:
		want := fold(kind.Suffix)
		return func(s string) bool { return strings.HasSuffix(fold(s), want) }, nil
	case *matcherv3.StringMatcher_Contains:
		want := fold(kind.Contains)
		return func(s string) bool { return strings.Contains(fold(s), want) }, nil
	case *matcherv3.StringMatcher_SafeRegex:
		text := kind.SafeRegex.GetRegex()
		if text == "" || len(text) > mostRegex {
			return nil, errors.New("safe_regex: want 1 to 1024 bytes")
		}
		re, err := regexp.Compile(`^(?:` + text + `)$`)
		if err != nil {
			return nil, errors.New("safe_regex: not a regular expression")
		}
		return re.MatchString, nil
	default:
		return nil, errors.New("string matcher: want exact, prefix, suffix, contains or safe_regex")
	}
}
