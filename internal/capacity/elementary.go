package capacity

import "math"

// A model takes thousands of logarithms and exponentials in each window, and these took a quarter of
// a decision about a large fleet. log and exp use tables: they take a fraction of the time of
// math.Log and math.Exp, with an absolute error (of exp: relative) below 1e-11. Evidence is
// kept as float32, whose precision is 1e-7.

const (
	tableBits = 7
	tableSize = 1 << tableBits

	mantissaBits = 52
	exponentBias = 1023
	one          = exponentBias << mantissaBits // the bits of 1.0
)

// logTable has for each of the equal parts of [1, 2) the reciprocal of its centre, and the logarithm
// of the centre of the numbers whose exponent has the bits 0.
var logTable = func() (t [tableSize]struct{ inverse, log float64 }) {
	for i := range t {
		centre := 1 + (float64(i)+0.5)/tableSize
		t[i].inverse = 1 / centre
		t[i].log = -math.Log(t[i].inverse) - exponentBias*math.Ln2
	}
	return t
}()

// log is math.Log.
func log(x float64) float64 {
	if !(x >= 0x1p-1022 && x <= math.MaxFloat64) {
		return math.Log(x)
	}
	bits := math.Float64bits(x)
	t := &logTable[bits>>(mantissaBits-tableBits)%tableSize]
	z := math.Float64frombits(bits&(1<<mantissaBits-1)|one)*t.inverse - 1
	return float64(int(bits>>mantissaBits))*math.Ln2 + (t.log + z*(1-z*(1./2-z*(1./3-z*(1./4)))))
}

// expTable has the bits of 2^(i/tableSize).
var expTable = func() (t [tableSize]uint64) {
	for i := range t {
		t[i] = math.Float64bits(math.Exp2(float64(i) / tableSize))
	}
	return t
}()

// exp is math.Exp.
func exp(x float64) float64 {
	const most = 700 // beyond, the result may have no exponent
	if !(x > -most && x < most) {
		return math.Exp(x)
	}
	return expNear(x)
}

// expNear is exp for numbers whose distance from 0 is below 700, such as all evidence. It is short
// enough for the compiler to put it into loops.
func expNear(x float64) float64 {
	const shift = 3 << (mantissaBits - 1) // a number this large has no fraction: to add it rounds
	rounded := x*(tableSize/math.Ln2) + shift
	parts := math.Float64bits(rounded) // its lowest bits count the table's steps
	z := x - (rounded-shift)*(math.Ln2/tableSize)
	return math.Float64frombits(expTable[parts%tableSize]+parts>>tableBits<<mantissaBits) * (1 + z*(1+z*(1./2+z*(1./6))))
}
