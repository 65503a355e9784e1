package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"golang.org/x/term"
)

// progressBar is one line on a terminal that stays in place; elsewhere it is
// nothing.
type progressBar struct {
	w     io.Writer // nil = no terminal
	all   int       // parts
	shown string
}

func newProgressBar(w io.Writer, all int) *progressBar {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &progressBar{w: w, all: all}
	}
	return &progressBar{}
}

const (
	progressWidth = 30
	clearTheLine  = "\r\x1b[K"
)

// show tells how much of a part is done, 0 to 1.
func (p *progressBar) show(part int, name string, done float64) {
	p.line(fmt.Sprintf("%d/%d %s", part+1, p.all, name), done)
}

// line shows a text and how much is done, 0 to 1. What is beyond that is shown as
// its end: of a trace in a pipe, or of one that grows, the size is not known.
func (p *progressBar) line(text string, done float64) {
	if p.w == nil {
		return
	}
	if done = max(0, min(1, done)); math.IsNaN(done) {
		done = 0
	}
	filled := int(done * progressWidth)
	line := fmt.Sprintf("[%s%s] %3.0f%%  %s", strings.Repeat("#", filled), strings.Repeat("-", progressWidth-filled), 100*done, text)
	if line != p.shown {
		p.shown = line
		_, _ = io.WriteString(p.w, clearTheLine+line) // nobody to tell
	}
}

func (p *progressBar) clear() {
	if p.w != nil && p.shown != "" {
		_, _ = io.WriteString(p.w, clearTheLine)
	}
}
