package main

import (
	"errors"
	"io"
	"os"
	"strings"

	"github.com/clipperhouse/displaywidth"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// outputFormat is the value of -o.
type outputFormat string

const (
	outputText outputFormat = "text"
	outputJSON outputFormat = "json"
)

var errOutput = errors.New("want text or json")

// String implements pflag.Value.
func (f *outputFormat) String() string { return string(*f) }

// Type implements pflag.Value; the help shows it.
func (f *outputFormat) Type() string { return "text|json" }

// Set implements pflag.Value.
func (f *outputFormat) Set(s string) error {
	switch outputFormat(s) {
	case outputText, outputJSON:
		*f = outputFormat(s)
		return nil
	}
	return errOutput
}

// register adds the flag -o to a command, text if it is not given.
func (f *outputFormat) register(cmd *cobra.Command) {
	*f = outputText
	cmd.Flags().VarP(f, "output", "o", "output format")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions( // fails only for a flag that is not there
		[]cobra.Completion{string(outputText), string(outputJSON)}, cobra.ShellCompDirectiveNoFileComp))
}

// column is one column of a table that may have to fit a terminal.
type column struct {
	head  string
	cells []string
	// spare says how easily it is missed: those with the highest number are left out first when
	// rows do not fit, those with 0 never.
	spare int
}

func (c *column) width() int {
	width := displaywidth.String(c.head)
	for _, cell := range c.cells {
		width = max(width, displaywidth.String(cell))
	}
	return width
}

// columnGap is between two columns.
const columnGap = 2

// fitColumns leaves out columns until a line is at most width characters long
// (0 = any), and names those that it left out.
func fitColumns(columns []column, width int) (kept []column, left []string) {
	kept = append(kept, columns...)
	for width > 0 && tableWidth(kept) > width {
		worst := -1
		for i := range kept {
			if kept[i].spare > 0 && (worst < 0 || kept[i].spare > kept[worst].spare) {
				worst = i
			}
		}
		if worst < 0 {
			break
		}
		left = append(left, kept[worst].head)
		kept = append(kept[:worst], kept[worst+1:]...)
	}
	return kept, left
}

func tableWidth(columns []column) int {
	width := columnGap * (len(columns) - 1)
	for i := range columns {
		width += columns[i].width()
	}
	return width
}

// writeColumns prints a table; all columns have as many cells.
func writeColumns(b *strings.Builder, columns []column) {
	if len(columns) == 0 {
		return
	}
	widths := make([]int, len(columns))
	for i := range columns {
		widths[i] = columns[i].width()
	}
	line := func(cell func(c *column) string) {
		var text strings.Builder
		for i := range columns {
			s := cell(&columns[i])
			text.WriteString(s + strings.Repeat(" ", widths[i]-displaywidth.String(s)+columnGap))
		}
		b.WriteString(strings.TrimRight(text.String(), " ") + "\n")
	}
	line(func(c *column) string { return c.head })
	for row := range columns[0].cells {
		line(func(c *column) string { return c.cells[row] })
	}
}

// widthOf is how many characters a line on w may have; 0 where it is no
// terminal.
func widthOf(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}
