package solver

import "slices"

// split gives every locality whose room goes beyond the knee of its queue cost
// a second column for the straight part. Each column is smooth, which the
// method needs: at the knee the second derivative jumps to 0, and optima like
// to sit there. It returns the wider program (p itself if there is nothing to
// split) and the locality of each column.
func (p *program) split() (wide *program, of []int) {
	second := make([]bool, 0, 2*p.localities)
	for l := range p.localities {
		of, second = append(of, l), append(second, false)
		knee := p.curves[l].knee()
		if !p.forced && knee > 0 && knee < p.room[l]*(1-1e-6) {
			of, second = append(of, l), append(second, true)
		}
	}
	if len(of) == p.localities {
		return p, of
	}
	w := &program{sources: p.sources, localities: len(of), demand: p.demand}
	for j, l := range of {
		room, c := p.room[l], p.curves[l]
		switch {
		case second[j]:
			room -= c.knee()
			c = curve{service: c.service + c.kneeSlope/c.capacity}
		case j+1 < len(of) && second[j+1]:
			room = c.knee()
		}
		w.room, w.curves, w.share = append(w.room, room), append(w.curves, c), append(w.share, p.share[l])
		if p.warmPrices != nil {
			w.warmPrices = append(w.warmPrices, p.warmPrices[l])
		}
	}
	for s := range p.sources {
		for j, l := range of {
			a := s*p.localities + l
			w.cost, w.open = append(w.cost, p.cost[a]), append(w.open, p.open[a])
			if p.spring != nil {
				w.spring = append(w.spring, p.spring[a])
				target := p.target[a]
				if second[j] {
					target = 0
				}
				w.target = append(w.target, target)
			}
		}
	}
	return w, of
}

// optimum is the rounded answer to a program.
type optimum struct {
	flow       []float64 // per arc
	prices     []float64 // per locality
	iterations int
}

// solve runs the method on the smooth form of the program and folds the answer
// back.
func (p *program) solve(method *interior) optimum {
	wide, of := p.split()
	best := method.solve(wide)
	x := make([]float64, p.sources*p.localities)
	out := optimum{prices: make([]float64, p.localities), iterations: best.iterations}
	for s := range p.sources {
		for j, l := range of {
			x[s*p.localities+l] += best.x[s*wide.localities+j]
		}
	}
	for j, l := range slices.Backward(of) {
		out.prices[l] = best.p[j]
		if j+1 < len(of) && of[j+1] == l {
			// Sources see the cheaper of the two columns.
			out.prices[l] = min(best.p[j], best.p[j+1])
		}
	}
	out.flow = p.round(x)
	return out
}
