package csds

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// Bounds of what one request may ask to be matched.
const (
	maxMatchers = 100
	maxPattern  = 1024 // bytes
)

// matcherOf returns what tells whether a node id is asked for: any of the matchers
// will do, and without any, all nodes are. Errors name the field.
func matcherOf(matchers []*matcherv3.NodeMatcher) (func(id string) bool, error) {
	if len(matchers) == 0 {
		return func(string) bool { return true }, nil
	}
	if len(matchers) > maxMatchers {
		return nil, fmt.Errorf("node_matchers: %d matchers, want at most %d", len(matchers), maxMatchers)
	}
	each := make([]func(string) bool, len(matchers))
	for i, m := range matchers {
		field := fmt.Sprintf("node_matchers[%d]", i)
		if len(m.GetNodeMetadatas()) > 0 {
			return nil, fmt.Errorf("%s.node_metadatas: the metadata of nodes is not kept; match by node_id", field)
		}
		if m.GetNodeId() == nil {
			each[i] = func(string) bool { return true }
			continue
		}
		match, err := stringMatcher(field+".node_id", m.GetNodeId())
		if err != nil {
			return nil, err
		}
		each[i] = match
	}
	return func(id string) bool {
		for _, match := range each {
			if match(id) {
				return true
			}
		}
		return false
	}, nil
}

func stringMatcher(field string, m *matcherv3.StringMatcher) (func(string) bool, error) {
	fold := func(s string) string { return s }
	if m.GetIgnoreCase() {
		fold = strings.ToLower
	}
	var kind, pattern string
	var test func(s, pattern string) bool
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		kind, pattern, test = "exact", p.Exact, func(s, pattern string) bool { return s == pattern }
	case *matcherv3.StringMatcher_Prefix:
		kind, pattern, test = "prefix", p.Prefix, strings.HasPrefix
	case *matcherv3.StringMatcher_Suffix:
		kind, pattern, test = "suffix", p.Suffix, strings.HasSuffix
	case *matcherv3.StringMatcher_Contains:
		kind, pattern, test = "contains", p.Contains, strings.Contains
	case *matcherv3.StringMatcher_SafeRegex:
		return regexMatcher(field+".safe_regex", p.SafeRegex.GetRegex())
	case *matcherv3.StringMatcher_Custom:
		return nil, fmt.Errorf("%s.custom: not supported; want exact, prefix, suffix, contains or safe_regex", field)
	default:
		return nil, fmt.Errorf("%s: no pattern; want exact, prefix, suffix, contains or safe_regex", field)
	}
	if err := checkPattern(field+"."+kind, pattern, kind == "exact"); err != nil {
		return nil, err
	}
	pattern = fold(pattern)
	return func(s string) bool { return test(fold(s), pattern) }, nil
}

func checkPattern(field, pattern string, mayBeEmpty bool) error {
	switch {
	case pattern == "" && !mayBeEmpty:
		return fmt.Errorf("%s: empty", field)
	case len(pattern) > maxPattern:
		return fmt.Errorf("%s: %d bytes long, want at most %d", field, len(pattern), maxPattern)
	case !utf8.ValidString(pattern):
		return fmt.Errorf("%s: not UTF-8", field)
	}
	return nil
}

// regexMatcher matches the whole of a string in RE2's syntax, in time linear in
// its length. ignore_case does not concern it, as in Envoy.
func regexMatcher(field, pattern string) (func(string) bool, error) {
	if err := checkPattern(field+".regex", pattern, false); err != nil {
		return nil, err
	}
	if _, err := regexp.Compile(pattern); err != nil { // alone: ")(" must not pass
		return nil, fmt.Errorf("%s.regex: %w", field, err)
	}
	whole, err := regexp.Compile(`^(?:` + pattern + `)$`)
	if err != nil {
		return nil, fmt.Errorf("%s.regex: %w", field, err)
	}
	return whole.MatchString, nil
}
