package interop

import (
	"fmt"
	"math"
	"testing"
)

// goodness collects comparisons of what was counted with what was predicted. All
// of them together reject a right prediction with a probability of 1e-4.
type goodness struct {
	found []comparison
}

type comparison struct {
	what string
	p    float64 // of being as far off, or farther, by chance
	off  string  // the difference, in words
}

const familyWise = 1e-4

// compare adds a comparison of counts of each outcome with the probabilities that
// were predicted, which sum to 1.
func (g *goodness) compare(what string, counts []int, predicted []float64) {
	n := 0
	for _, k := range counts {
		n += k
	}
	x, cells := 0.0, 0
	var rare, rareExpected float64 // joined: the test is not exact for few
	for i, p := range predicted {
		switch expected := p * float64(n); {
		case p < 1e-12:
			if counts[i] > 0 {
				g.found = append(g.found, comparison{what, 0, fmt.Sprintf("outcome %d came %d times, predicted never", i, counts[i])})
			}
		case expected < 5:
			rare += float64(counts[i])
			rareExpected += expected
		default:
			x += (float64(counts[i]) - expected) * (float64(counts[i]) - expected) / expected
			cells++
		}
	}
	if rareExpected >= 5 {
		x += (rare - rareExpected) * (rare - rareExpected) / rareExpected
		cells++
	}
	if cells > 1 {
		g.found = append(g.found, comparison{what, upperGamma(float64(cells-1)/2, x/2), fmt.Sprintf("counted %v of %d, predicted %.4f", counts, n, predicted)})
	}
}

// report fails the test for comparisons that no chance explains.
func (g *goodness) report(t *testing.T) {
	t.Helper()
	least := 1.0
	for _, c := range g.found {
		least = min(least, c.p)
		if c.p < familyWise/float64(len(g.found)) {
			t.Errorf("%s: %s (p = %.2g)", c.what, c.off, c.p)
		}
	}
	t.Logf("%d comparisons, least p %.2g", len(g.found), least)
}

// upperGamma is the regularized upper incomplete gamma function Q(a, x): by its
// series for small x, by its continued fraction for large.
func upperGamma(a, x float64) float64 {
	if x <= 0 {
		return 1
	}
	logGamma, _ := math.Lgamma(a)
	front := math.Exp(a*math.Log(x) - x - logGamma)
	if x < a+1 {
		sum, term := 1/a, 1/a
		for k := 1.0; k < 10_000 && term > sum*1e-15; k++ {
			term *= x / (a + k)
			sum += term
		}
		return max(0, 1-front*sum)
	}
	const tiny = 1e-300
	b := x + 1 - a
	c, d := 1/tiny, 1/b
	h := d
	for k := 1.0; k < 10_000; k++ { // Lentz's method
		an := -k * (k - a)
		b += 2
		if d = an*d + b; math.Abs(d) < tiny {
			d = tiny
		}
		if c = b + an/c; math.Abs(c) < tiny {
			c = tiny
		}
		d = 1 / d
		h *= d * c
		if math.Abs(d*c-1) < 1e-15 {
			break
		}
	}
	return front * h
}

// Values of the chi-square distribution from tables, and a prediction that is off.
func TestChiSquare(t *testing.T) {
	for _, row := range []struct{ cells, x, p float64 }{
		{2, 3.841, 0.05}, {2, 10.828, 0.001}, {6, 11.070, 0.05}, {11, 18.307, 0.05}, {31, 43.773, 0.05}, {31, 59.703, 0.001},
	} {
		if p := upperGamma((row.cells-1)/2, row.x/2); math.Abs(p-row.p) > 1e-4 {
			t.Errorf("%v: p = %v", row, p)
		}
	}
	var g goodness
	g.compare("right", []int{700, 200, 100}, []float64{0.7, 0.2, 0.1})
	g.compare("off", []int{700, 200, 100}, []float64{0.6, 0.3, 0.1})
	g.compare("never", []int{999, 1}, []float64{1, 0})
	if len(g.found) != 3 || g.found[0].p < 0.99 || g.found[1].p > 1e-8 || g.found[2].p != 0 {
		t.Errorf("%+v", g.found)
	}
}
