package load

// lineRules are the conditions under which the line of a quantity over the rate shows where it
// reaches 1.
type lineRules struct {
	leastMean  float64 // of the quantity, below which the estimate is inconclusive
	mostOffset float64 // without any load, beyond which it is not about load
	// bent lets the quantity grow faster than the rate, as queues do: then the
	// line stands for the part of the curve that was seen.
	bent bool
}

// line follows a quantity over the rate, window by window.
type line struct {
	doubted int     // windows in a row that are off the line
	ratio   float64 // sum over them of the reported over the predicted value
}

// take adds a window to the fit, unless it is far from the drawn line (known). Several windows in
// a row that are off by the same factor mean that the line has changed: then its known shape
// stays. take reports whether the line is to be drawn again.
func (l *line) take(f *Fit, known bool, rate, quantity float64) bool {
	if known {
		predicted := f.at(rate)
		off := quantity - predicted
		limit := max(outlierSigmas*f.Sigma, outlierFloor*predicted)
		switch {
		case max(off, -off) <= limit || predicted <= 0:
			l.doubted, l.ratio = 0, 0
		case l.doubted > 0 && (off > 0) != (l.ratio > float64(l.doubted)):
			l.doubted, l.ratio = 1, quantity/predicted
			return false
		default:
			l.doubted, l.ratio = l.doubted+1, l.ratio+quantity/predicted
			if l.doubted < stepWindows {
				return false
			}
			f.rescale(l.ratio / float64(l.doubted))
			l.doubted, l.ratio = 0, 0
		}
	}
	f.add(rate, quantity)
	return true
}
