package main

import (
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// A child is the optional command that runs while this peer leads.
type child struct {
	command     []string
	orphan      bool
	stopTimeout time.Duration
	events      *events

	mutex   sync.Mutex
	process *os.Process
	stopped bool
	exited  chan struct{}
}

func (c *child) start() {
	if len(c.command) == 0 {
		return
	}
	started := make(chan struct{})
	go c.run(started)
	<-started
}

// run keeps its thread: the parent-death signal is tied to the thread that forked.
func (c *child) run(started chan<- struct{}) {
	runtime.LockOSThread()
	cmd := exec.Command(c.command[0], c.command[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if !c.orphan {
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	}
	err := c.spawn(cmd)
	close(started)
	if err != nil {
		c.events.print("child_failed", fields{"error": err.Error()})
		return
	}
	if cmd.Process == nil {
		return
	}
	_ = cmd.Wait()
	c.events.print("child_exited", fields{"pid": cmd.Process.Pid, "status": cmd.ProcessState.String()})
	close(c.exited)
}

func (c *child) spawn(cmd *exec.Cmd) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.stopped {
		return nil
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.process, c.exited = cmd.Process, make(chan struct{})
	c.events.print("child_started", fields{"pid": cmd.Process.Pid})
	return nil
}

func (c *child) stop() {
	c.mutex.Lock()
	c.stopped = true
	process, exited := c.process, c.exited
	c.mutex.Unlock()
	if process == nil {
		return
	}
	_ = process.Signal(syscall.SIGTERM)
	select {
	case <-exited:
	case <-time.After(c.stopTimeout):
		_ = process.Kill()
		<-exited
	}
}
