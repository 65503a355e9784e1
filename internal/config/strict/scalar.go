package strict

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// decimal is how numbers are written. Other notations of YAML (octal, hex,
// underscores) mean different things to different parsers.
var decimal = regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*|[0-9]*\.[0-9]+|[1-9][0-9]*\.)([eE][-+]?[0-9]+)?$`)

// IsText reports whether the value is text.
func (v Value) IsText() bool { return v.node.kind == textKind }

// Text reads text that is not empty.
func (v Value) Text() (string, bool) {
	if !v.want(textKind) {
		return "", false
	}
	if v.node.text == "" {
		v.Errorf("give a value, or leave the field out", "is empty")
		return "", false
	}
	return v.node.text, true
}

// Bool reads true or false.
func (v Value) Bool() (value, ok bool) {
	if v.node.kind == textKind {
		v.Errorf("write true or false", "want true or false, got text (%s)", clip(v.node.text))
		return false, false
	}
	if !v.want(boolKind) {
		return false, false
	}
	return strings.EqualFold(v.node.text, "true"), true
}

// Range is what a number may be.
type Range struct {
	Min, Max  float64
	AboveMin  bool   // Min itself is not allowed
	BelowMax  bool   // Max itself is not allowed
	Unit      string // for messages
	ZeroHint  string // what to write instead of 0, where 0 is out of range
	LargeHint string // what is likely wrong with a value above Max
}

func (r Range) contains(x float64) bool {
	return x >= r.Min && x <= r.Max && (!r.AboveMin || x > r.Min) && (!r.BelowMax || x < r.Max)
}

// String says the range in words.
func (r Range) String() string {
	lo, hi := "at least ", "at most "
	if r.AboveMin {
		lo = "above "
	}
	if r.BelowMax {
		hi = "below "
	}
	s := lo + number(r.Min) + " and " + hi + number(r.Max)
	if r.Unit != "" {
		s += " " + r.Unit
	}
	return s
}

func number(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// Float reads a finite number within r.
func (v Value) Float(r Range) (float64, bool) {
	x, ok := v.finite()
	if !ok {
		return 0, false
	}
	if r.contains(x) {
		return x, true
	}
	hint := "write a number " + r.String()
	if x == 0 && r.ZeroHint != "" {
		hint = r.ZeroHint
	}
	if x > r.Max && r.LargeHint != "" {
		hint = r.LargeHint
	}
	v.Errorf(hint, "%s is out of range", clip(v.node.text))
	return 0, false
}

// Int reads a whole number within r.
func (v Value) Int(r Range) (int64, bool) {
	x, ok := v.Float(r)
	if !ok {
		return 0, false
	}
	if x != math.Trunc(x) || math.Abs(x) > 1<<53 {
		v.Errorf("write "+number(math.Floor(x))+" or "+number(math.Ceil(x)), "%s is not a whole number", clip(v.node.text))
		return 0, false
	}
	return int64(x), true
}

// finite reads a number in decimal notation.
func (v Value) finite() (float64, bool) {
	n := v.node
	switch {
	case n.kind == oddKind || n.kind == textKind && oddText(n.text):
		v.Errorf("write a finite number", "%s is not a finite number", clip(n.text))
	case n.kind == textKind && n.quoted && decimal.MatchString(n.text):
		v.Errorf("leave the quotes out", "want a number, got text (%s)", clip(n.text))
	case n.kind == numberKind && !decimal.MatchString(n.text):
		v.Errorf("write it in decimal, without leading zeros or underscores", "%s is not a plain decimal number", clip(n.text))
	case n.kind == textKind && decimal.MatchString(n.text), n.kind == numberKind: // YAML reads 1e3 as text, JSON does not
		x, err := strconv.ParseFloat(n.text, 64)
		if err == nil {
			return x, true
		}
		v.Errorf("write a finite number", "%s is too large", clip(n.text))
	default:
		v.want(numberKind)
	}
	return 0, false
}

func oddText(s string) bool {
	s = strings.ToLower(strings.TrimLeft(s, "+-."))
	return s == "nan" || s == "inf" || s == "infinity"
}

// Duration reads a duration such as 5s, from lo to hi.
func (v Value) Duration(lo, hi time.Duration) (time.Duration, bool) {
	n := v.node
	if n.kind == numberKind {
		v.Errorf(withUnit(clip(n.text), lo, hi), "%s has no unit", clip(n.text))
		return 0, false
	}
	if n.kind != textKind {
		v.Errorf("write it like 5s or 1m30s", "want a duration, got %s%s", n.kind, v.shown())
		return 0, false
	}
	d, err := time.ParseDuration(n.text)
	switch {
	case err != nil:
		v.Errorf(meantDuration(n.text, lo, hi), "\"%s\" is not a duration", clip(n.text))
	case d < lo || d > hi:
		v.Errorf("write a duration from "+short(lo)+" to "+short(hi), "%s is out of range", clip(n.text))
	default:
		return d, true
	}
	return 0, false
}

// withUnit returns the hint for a number without a unit: as seconds, or as
// milliseconds where so many seconds would be out of range.
func withUnit(number string, lo, hi time.Duration) string {
	for _, unit := range []string{"s", "ms"} {
		if d, err := time.ParseDuration(number + unit); err == nil && lo <= d && d <= hi {
			return "write it as " + number + unit
		}
	}
	return "write a duration from " + short(lo) + " to " + short(hi)
}

// meantDuration returns the hint for a text that is no duration: a number in quotes lacks
// the unit as one without quotes does, and spaces may not stand in a duration.
func meantDuration(text string, lo, hi time.Duration) string {
	joined := strings.Join(strings.Fields(text), "")
	if d, err := time.ParseDuration(joined); err == nil && lo <= d && d <= hi {
		return "write it as " + joined
	}
	if _, err := strconv.ParseFloat(joined, 64); err == nil && !oddText(joined) {
		return withUnit(joined, lo, hi)
	}
	return "write it like 5s or 1m30s"
}

// short writes a duration without the zero parts that Duration.String adds.
func short(d time.Duration) string {
	s := d.String()
	s = strings.TrimSuffix(s, "0s")
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	if s == "" || !strings.ContainsAny(s[len(s)-1:], "hms") {
		return d.String()
	}
	return s
}

// Enum reads one of the names.
func (v Value) Enum(names ...string) (string, bool) {
	s, ok := v.Text()
	if !ok {
		return "", false
	}
	if slices.Contains(names, s) {
		return s, true
	}
	v.Errorf("write one of "+strings.Join(names, ", "), "unknown value \"%s\"", clip(s))
	return "", false
}
