package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/isobar-xds/isobar/internal/fleet"
)

// errInterrupted says that the user ended a live view.
var errInterrupted = errors.New("interrupted")

// demoStarts is shown until there is something to see.
const demoStarts = "isobar demo   starting backends, clients and the server ...\n"

// liveDemo is the live table. Its messages are frames and keys.
type liveDemo struct {
	frame         *fleet.Frame
	history       *demoHistory
	width, height int
	cancel        context.CancelCauseFunc
}

func newLiveDemo(cancel context.CancelCauseFunc) liveDemo {
	return liveDemo{history: &demoHistory{}, width: defaultWidth, height: defaultHeight, cancel: cancel}
}

// Init implements [tea.Model].
func (m liveDemo) Init() tea.Cmd { return nil }

// Update implements [tea.Model].
func (m liveDemo) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case fleet.Frame:
		m.frame = &msg
		m.history.add(&msg)
	case tea.KeyPressMsg:
		if k := msg.String(); k == "ctrl+c" || k == "q" {
			m.cancel(errInterrupted)
		}
	}
	return m, nil
}

// View implements [tea.Model].
func (m liveDemo) View() tea.View {
	if m.frame == nil {
		return tea.NewView(demoStarts)
	}
	table := frameTable(m.frame, m.width)
	return tea.NewView(table + m.history.chart(m.width, m.height-1-strings.Count(table, "\n")))
}

// playLive shows frames in a table that stays in place.
func playLive(ctx context.Context, w io.Writer, play func(context.Context, func(fleet.Frame)) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	program := tea.NewProgram(newLiveDemo(cancel), tea.WithOutput(w), tea.WithoutSignalHandler())
	played := make(chan error, 1)
	go func() {
		err := play(ctx, func(f fleet.Frame) { program.Send(f) })
		program.Quit()
		played <- err
	}()
	_, viewErr := program.Run()
	if viewErr != nil {
		cancel(fmt.Errorf("live view: %w", viewErr))
	}
	if err := <-played; err != nil {
		return err
	}
	return viewErr
}
