package providertest

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func pauseCases() []Case {
	const group = "pause"
	return needing([]Case{
		{Group: group, Name: "files stay over a pause", run: pauseKeepsFiles},
		{Group: group, Name: "to pause and to resume twice is a success", run: pauseTwice},
		{Group: group, Name: "a paused instance executes nothing", run: pausedExecutesNothing},
		{Group: group, Name: "a paused instance is listed", run: pausedIsListed},
		{Group: group, Name: "a paused instance can be destroyed", run: pausedIsDestroyed},
		{Group: group, Name: "a command stands still and goes on", run: pauseStopsCommands, needs: []sdk.Capability{sdk.CapabilityCommands}},
		{Group: group, Name: "a command is read, written to and signalled after a pause", run: commandsOutlivePause, needs: []sdk.Capability{sdk.CapabilityCommands}},
		{Group: group, Name: "a context keeps its state", run: contextOutlivesPause, needs: []sdk.Capability{sdk.CapabilityContexts}},
		{Group: group, Name: "a watch goes on, or says that it has ended", run: watchOutlivesPause, needs: []sdk.Capability{sdk.CapabilityFileWatch, sdk.CapabilityFiles}},
		{Group: group, Name: "a pause says whether it has released, and says it again", run: pauseSaysWhatItReleased, needs: []sdk.Capability{sdk.CapabilityPauseReleases}},
		{Group: group, Name: "what one pause after the other has released goes on", run: releasedGoesOn, needs: []sdk.Capability{sdk.CapabilityPauseReleases, sdk.CapabilityContexts}},
		{Group: group, Name: "unknown instances are not found", run: pauseUnknown},
	}, sdk.CapabilityPause)
}

func (in instance) pause() {
	in.must(in.call("Pause", func(ctx context.Context) error { return in.Pause(ctx, in.ID) }), "pause")
}

func (in instance) resume() {
	in.must(in.call("Resume", func(ctx context.Context) error { return in.Resume(ctx, in.ID) }), "resume")
}

// "Pause freezes every process; memory and files stay." (Pauser)
func pauseKeepsFiles(c *scene) {
	in := c.instance()
	in.run(c.samples.Write).succeeded()
	in.pause()
	in.resume()
	in.prints(c.samples.Read, "kept")
}

// "Both methods are idempotent." (Pauser)
func pauseTwice(c *scene) {
	in := c.instance()
	in.resume()
	for range 2 {
		in.pause()
	}
	for range 2 {
		in.resume()
	}
	in.prints(c.samples.Hello, "hello\n")
}

// "and starts none in a paused one; a provider that sees one answers CodeConflict."
// (Pauser)
func pausedExecutesNothing(c *scene) {
	in := c.instance()
	in.pause()
	c.refused(c.tried(in.request(c.samples.Hello)).err, "Execute in a paused instance", sdk.CodeConflict)
	in.resume()
	in.prints(c.samples.Hello, "hello\n")
}

// "List returns every live instance." (Provider.List)
func pausedIsListed(c *scene) {
	in := c.instance()
	in.pause()
	_, ok := c.listed()[in.ID]
	c.check(ok, "List lacks the paused instance %s", in.ID)
}

// "Destroy ends an instance." (Provider.Destroy)
func pausedIsDestroyed(c *scene) {
	in := c.instance()
	in.pause()
	c.destroy(in.ID)
	_, ok := c.listed()[in.ID]
	c.check(!ok, "List has the instance %s that was destroyed", in.ID)
}

// release pauses an instance as the broker does.
func (in instance) release() (released bool) {
	in.must(in.call("PauseReleasing", func(ctx context.Context) (err error) {
		released, err = in.PauseReleasing(ctx, in.ID)
		return err
	}), "pause")
	return released
}

// "PauseReleasing is Pause" and "Of one that is paused already it says the same again."
// (PauseReleaser)
func pauseSaysWhatItReleased(c *scene) {
	in := c.instance()
	first := in.release()
	equal(c, in.release(), first, "what a second pause says to have released")
	in.resume()
	in.prints(c.samples.Hello, "hello\n")
}

// "they are written down and go on from there" (PauseReleaser)
func releasedGoesOn(c *scene) {
	in := c.instance()
	made := in.newContext()
	made.run(c.samples.SetVariable).succeeded()
	for range 3 {
		in.release()
		in.resume()
		made.prints(c.samples.GetVariable, "1")
	}
	in.release()
	c.destroy(in.ID)
	_, ok := c.listed()[in.ID]
	c.check(!ok, "List has the instance %s that was destroyed", in.ID)
}

// "return CodeNotFound for an unknown instance" (Pauser)
func pauseUnknown(c *scene) {
	c.refused(c.Pause(c.ctx, "unknown"+randomWord()), "Pause of an unknown instance", sdk.CodeNotFound)
	c.refused(c.Resume(c.ctx, "unknown"+randomWord()), "Resume of an unknown instance", sdk.CodeNotFound)
}

func lifetimeCases() []Case {
	const group = "set_ttl"
	return needing([]Case{
		{Group: group, Name: "an instance says when it expires", run: ttlIsTold},
		{Group: group, Name: "an instance ends by itself", run: ttlEnds},
		{Group: group, Name: "its end is moved ahead", run: ttlMovesAhead},
		{Group: group, Name: "its end is moved back", run: ttlMovesBack},
		{Group: group, Name: "unknown instances are not found", run: ttlUnknown},
	}, sdk.CapabilitySetTTL)
}

// expiring makes an instance with a TTL.
func (c *scene) expiring(ttl time.Duration) instance {
	c.someLanguage()
	req := c.createRequest(c.language)
	req.TTL = ttl
	return c.create(req)
}

// near checks a time of the provider's clock, roughly.
func (c *scene) near(got time.Time, ttl time.Duration, what string) {
	slack := c.suite.within(time.Minute)
	c.check(!got.IsZero(), "%s is missing", what)
	if off := time.Until(got) - ttl; off < -slack || off > slack {
		c.fail("%s is in %v; it must be in %v", what, time.Until(got).Round(time.Second), ttl)
	}
}

// "ExpiresAt is when the provider will destroy it." (Instance)
func ttlIsTold(c *scene) {
	made := c.expiring(time.Hour)
	c.near(made.ExpiresAt, time.Hour, "the expiry that Create returned")
	c.near(c.listed()[made.ID].ExpiresAt, time.Hour, "the expiry that List returned")
}

// "TTLSetter is implemented by providers that destroy an instance by themselves at
// the end of CreateRequest.TTL."
func ttlEnds(c *scene) { c.expiring(c.suite.within(2 * time.Second)).ends() }

// ends waits for an instance that nobody destroys.
func (in instance) ends() {
	in.eventually("the instance ends by itself", func(context.Context) error {
		if _, there := in.listed()[in.ID]; there {
			return errors.New("it is listed")
		}
		return nil
	})
	in.refused(in.tried(in.request(in.samples.Hello)).err, "Execute in an instance that has expired", sdk.CodeNotFound)
}

// "SetTTL moves that time to now plus ttl, and returns it." (TTLSetter)
func ttlMovesAhead(c *scene) {
	made := c.expiring(time.Hour)
	at := made.setTTL(c.suite.within(2 * time.Second))
	c.check(at.Before(made.ExpiresAt), "an expiry that was moved ahead is %v, after %v", at, made.ExpiresAt)
	made.ends()
}

// The same.
func ttlMovesBack(c *scene) {
	short := c.suite.within(3 * time.Second)
	made := c.expiring(short)
	c.near(made.setTTL(time.Hour), time.Hour, "the expiry that SetTTL returned")
	c.near(c.listed()[made.ID].ExpiresAt, time.Hour, "the expiry that List returned")
	// Until the old one is over, by an instance that has it.
	c.expiring(short).ends()
	made.prints(c.samples.Hello, "hello\n")
}

func (in instance) setTTL(ttl time.Duration) time.Time {
	var at time.Time
	err := in.call("SetTTL", func(ctx context.Context) (err error) {
		at, err = in.SetTTL(ctx, in.ID, ttl)
		return err
	})
	in.must(err, "set the TTL")
	return at
}

// The same as of all calls for an instance.
func ttlUnknown(c *scene) {
	_, err := c.SetTTL(c.ctx, "unknown"+randomWord(), time.Minute)
	c.refused(err, "SetTTL of an unknown instance", sdk.CodeNotFound)
}

func meterCases() []Case {
	const group = "metrics"
	return needing([]Case{
		{Group: group, Name: "what an instance uses is measured now", run: meterMeasures},
		{Group: group, Name: "used CPU time grows with use", run: meterGrows},
		{Group: group, Name: "nothing is above its limit by far", run: meterLimits},
		{Group: group, Name: "unknown instances are not found", run: meterUnknown},
	}, sdk.CapabilityMetrics)
}

func (in instance) measure() sdk.InstanceMetrics {
	var m sdk.InstanceMetrics
	err := in.call("InstanceMetrics", func(ctx context.Context) (err error) {
		m, err = in.InstanceMetrics(ctx, in.ID)
		return err
	})
	in.must(err, "measure")
	return m
}

// "InstanceMetrics measures now." (Meter)
func meterMeasures(c *scene) {
	m := c.instance().measure()
	c.near(m.MeasuredAt, 0, "the time of the measurement")
	c.check(m.CPUTime > 0 || m.Memory > 0 || m.Disk > 0 || m.Processes > 0, "everything is unknown: %+v", m)
}

// "CPUTime since the instance was made" (InstanceMetrics)
func meterGrows(c *scene) {
	in := c.instance()
	before := in.measure()
	req := in.request(c.code(c.samples.Spin))
	req.Timeout = c.suite.within(time.Second)
	c.execute(req)
	after := in.measure()
	if before.CPUTime == 0 && after.CPUTime == 0 {
		c.skip("the CPU time is unknown")
	}
	c.check(after.CPUTime > before.CPUTime, "code that used a CPU for a second took the CPU time from %v to %v", before.CPUTime, after.CPUTime)
}

// "Bytes." (InstanceMetrics), in the same unit as their limits.
func meterLimits(c *scene) {
	in := c.instance()
	in.run(c.samples.Hello)
	m := in.measure()
	for what, pair := range map[string][2]int64{"memory": {m.Memory, m.MemoryLimit}, "disk": {m.Disk, m.DiskLimit}, "processes": {m.Processes, m.ProcessLimit}} {
		used, limit := pair[0], pair[1]
		c.check(limit == 0 || used <= 2*limit, "%s: %d are used of %d", what, used, limit)
	}
}

// The same as of all calls for an instance.
func meterUnknown(c *scene) {
	_, err := c.InstanceMetrics(c.ctx, "unknown"+randomWord())
	c.refused(err, "InstanceMetrics of an unknown instance", sdk.CodeNotFound)
}

// pauseLength is how long what must not happen in a pause has to show. It is no limit, so
// patience does not change it.
const pauseLength = 3 * time.Second

// countInterval is the least time between two numbers of counting. It is long beside what a
// loop of sh needs for itself on a busy machine: a command that counts through a pause would
// otherwise be so slow that its count is one of the time before and after the pause.
const countInterval = 500 * time.Millisecond

// counting is a line for sh that counts in a file, and never faster than countInterval.
const counting = "i=0; while :; do i=$((i+1)); echo $i > count.new; mv count.new count; sleep 0.5; done"

var errNotYet = errors.New("not yet")

// count is how far a command has counted.
func (in commands) count() int {
	_, out := in.follow(in.shell("cat count 2>/dev/null || echo 0"))
	n, err := strconv.Atoi(strings.TrimSpace(out.stdout.String()))
	in.must(err, "read what a command counts")
	return n
}

// "Pause freezes every process" and "lets every process go on where it was" (Pauser):
// those of commands too.
func pauseStopsCommands(c *scene) {
	in := c.instance().commands()
	in.shell(counting)
	c.eventually("a command counts", func(context.Context) error {
		if in.count() == 0 {
			return errNotYet
		}
		return nil
	})
	began := time.Now()
	before := in.count()
	in.pause()
	// Where the calls take long, only a pause that is longer shows anything.
	length := max(pauseLength, 4*time.Since(began))
	c.pass(length)
	in.resume()
	after := in.count()
	ran := time.Since(began) - length
	// One number may be due at either end of the pause, whatever the time beside it.
	if most := int(ran/countInterval) + 2; after-before > most {
		c.fail("a command counted %d times over a pause of %v, and can have had the time for %d", after-before, length, most)
	}
	c.eventually("a command goes on after a pause", func(context.Context) error {
		if in.count() <= after {
			return errNotYet
		}
		return nil
	})
}

// "A command that a pause stops is running before, meanwhile and after it." (Pauser)
func commandsOutlivePause(c *scene) {
	in := c.instance().commands()
	started := in.shell("echo first; read line; echo got $line; sleep 600", withStdin)
	in.reads(started, "first\n")
	in.pause()
	in.resume()
	list, err := c.ListCommands(c.ctx, in.ID)
	c.must(err, "list the commands")
	c.check(len(list) == 1 && list[0].ID == started.ID && list[0].State == sdk.CommandRunning, "the command does not run any more after a pause: %s", shown(list))
	c.must(c.WriteCommand(c.ctx, in.ID, started.ID, []byte("it\n"), false), "write to the command after a pause")
	in.reads(started, "first\ngot it\n")
	in.signal(started, "SIGTERM")
	ended, _ := in.follow(started)
	equal(c, ended.State, sdk.CommandCancelled, "the state of a command that SIGTERM ended after a pause")
	equal(c, ended.ExitCode, 128+15, "the exit code")
}

// "memory and files stay" (Pauser)
func contextOutlivesPause(c *scene) {
	in := c.instance()
	made := in.newContext()
	made.run(c.samples.SetVariable).succeeded()
	in.pause()
	in.resume()
	made.prints(c.samples.GetVariable, "1")
}

// "Who follows a command or watches files meanwhile goes on afterwards, or is told
// CodeConflict." (Pauser) None is left with a watch that says nothing any more.
func watchOutlivesPause(c *scene) {
	in := c.instance().files()
	w := in.watch(false)
	in.pause()
	in.resume()
	in.write("after-the-pause", "x")
	timer := time.NewTimer(c.suite.within(callTimeout))
	defer timer.Stop()
	for {
		select {
		case change := <-w.changes:
			if change.Path == "/workspace/after-the-pause" {
				return
			}
		case <-w.ended:
			c.refused(w.err, "WatchFiles over a pause", sdk.CodeConflict)
			again := in.watch(false)
			in.write("again", "x")
			again.told("/workspace/again", sdk.FileCreated, sdk.FileModified, sdk.FileRenamed)
			return
		case <-timer.C:
			c.fail("a watch neither tells of a change after a pause nor ends")
		}
	}
}
