package guest

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/memory"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// metrics measures what the programs of the sandbox use. The limits are the
// plugin's to tell.
type metrics struct {
	providerv1.UnimplementedMetricsServiceServer
}

func (metrics) InstanceMetrics(context.Context, *providerv1.InstanceMetricsRequest) (*providerv1.InstanceMetricsResponse, error) {
	m := &providerv1.InstanceMetricsResponse{MeasuredAt: timestamppb.Now()}
	used, err := memory.InUse()
	if err != nil {
		return nil, sdk.Errorf(sdk.CodeInternal, "measure memory: %w", err)
	}
	m.MemoryBytes = used
	for _, dir := range []string{isolation.WorkspaceDir, "/tmp"} {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			return nil, sdk.Errorf(sdk.CodeInternal, "measure %s: %w", dir, err)
		}
		m.DiskBytes += int64(st.Blocks-st.Bfree) * st.Bsize
		m.DiskLimitBytes += int64(st.Blocks) * st.Bsize
	}
	cpu, threads, err := processesInUse()
	if err != nil {
		return nil, sdk.Errorf(sdk.CodeInternal, "measure processes: %w", err)
	}
	m.CpuTime, m.Processes = durationpb.New(cpu), threads
	return m, nil
}

// clockTick is the unit of times in /proc, the same on every Linux.
const clockTick = time.Second / 100

// processesInUse adds up the processor time of all processes but the guest, those
// that have ended too, and counts the threads that live. Interpreters that wait
// are among them; the init processes are not.
func processesInUse() (cpu time.Duration, threads int64, err error) {
	var ended unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &ended); err != nil {
		return 0, 0, err
	}
	cpu = time.Duration(ended.Utime.Nano() + ended.Stime.Nano())
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, 0, err
	}
	guest := strconv.Itoa(os.Getpid())
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err != nil || entry.Name() == guest {
			continue
		}
		text, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue // it has just ended
		}
		// The name of the program, in parentheses, may hold anything.
		fields := strings.Fields(string(text)[strings.LastIndex(string(text), ")")+1:])
		if len(fields) < 18 {
			continue
		}
		for _, field := range fields[11:15] { // utime, stime and those of children that were waited for
			n, _ := strconv.ParseInt(field, 10, 64)
			cpu += time.Duration(n) * clockTick
		}
		// Init processes and the fork server are the guest's children in its session.
		if fields[1] != guest || fields[3] == entry.Name() {
			n, _ := strconv.ParseInt(fields[17], 10, 64)
			threads += n
		}
	}
	return cpu, threads, nil
}
