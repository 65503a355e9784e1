package testhelp

import (
	"math"
	"math/rand/v2"
	"reflect"
	"time"
)

// maxDepth bounds values within values.
const maxDepth = 10

// Arbitrary fills a value with others, the unusual ones among them: numbers at the bounds of
// notations, texts with characters that have to be escaped, times in zones, and lists that are nil
// or empty. The same seed gives the same value. Fields that are not exported stay as they are.
func Arbitrary[T any](into *T, seed uint64) {
	a := arbitrary{rand.New(rand.NewPCG(seed, seed))} //nolint:gosec // no secret
	a.fill(reflect.ValueOf(into).Elem(), 0)
}

type arbitrary struct{ *rand.Rand }

func oneOf[T any](a arbitrary, values ...T) T { return values[a.IntN(len(values))] }

func (a arbitrary) float() float64 {
	return oneOf(a, 0, math.Copysign(0, -1), 1, -1, 0.5, 140, 1e-6, 9.99e-7, 1e-9, -3e-10, 1e20, 1e21, 1e-100, 1<<53, -1<<53, 1<<60,
		math.MaxFloat64, math.SmallestNonzeroFloat64, a.Float64(), 1000*a.Float64(), math.Float64frombits(a.Uint64()&^(1<<62)))
}

func (a arbitrary) text() string {
	return oneOf(a, "", "service-0001", "10.0.0.1:80", `a"b\c`, "<b>&", "line\nbreak\ttab", "\x00\x7f", "größe", "\u2028", "not\xffvalid")
}

func (a arbitrary) time() time.Time {
	zone := oneOf(a, time.UTC, time.FixedZone("", 5400), time.FixedZone("", -7200))
	return oneOf(a, time.Time{}, time.Unix(a.Int64N(1<<33), oneOf(a, int64(0), 5e8, 123456789)).In(zone))
}

func (a arbitrary) fill(v reflect.Value, depth int) {
	if _, ok := reflect.TypeAssert[time.Time](v); ok {
		v.Set(reflect.ValueOf(a.time()))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(a.IntN(2) == 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(oneOf(a, 0, 1, -1, a.Int64()) >> (64 - v.Type().Bits()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(oneOf(a, 0, 1, 2, a.Uint64()>>(64-v.Type().Bits())))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(a.float())
	case reflect.String:
		v.SetString(a.text())
	case reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanSet() {
				a.fill(field, depth+1)
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			a.fill(v.Index(i), depth+1)
		}
	case reflect.Slice:
		n := oneOf(a, -1, 0, 1, 2)
		if n < 0 || depth > maxDepth {
			v.SetZero()
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			a.fill(v.Index(i), depth+1)
		}
	case reflect.Pointer:
		if a.IntN(2) == 0 || depth > maxDepth {
			v.SetZero()
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		a.fill(v.Elem(), depth+1)
	default: // others stay as they are
	}
}
