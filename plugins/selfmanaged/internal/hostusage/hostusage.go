// Package hostusage tells how much of the machine is in use, for the metrics of the
// provider: sandboxes share it with everything else that runs there.
package hostusage

import (
	"errors"
	"fmt"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Metrics are processors, memory, and the disk that a directory is on. What cannot be
// read is left out, and in the error.
func Metrics(dir string) ([]sdk.Metric, error) {
	var all []sdk.Metric
	gauge := func(name, help string, value float64) {
		all = append(all, sdk.Metric{Name: name, Help: help, Kind: sdk.MetricGauge, Value: value})
	}
	var errs []error
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, fmt.Errorf("read /proc: %w", err)
	}
	if stat, err := proc.Stat(); err != nil {
		errs = append(errs, fmt.Errorf("read the time of the processors: %w", err))
	} else {
		t := stat.CPUTotal // what guests of virtual machines use is a part of User
		all = append(all, sdk.Metric{
			Name: "host_cpu_busy_seconds_total", Help: "Time that the processors of the machine were busy, for whatever program.",
			Kind: sdk.MetricCounter, Value: t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal,
		})
		gauge("host_cpus", "Processors of the machine.", float64(len(stat.CPU)))
	}
	if memory, err := proc.Meminfo(); err != nil {
		errs = append(errs, fmt.Errorf("read the memory of the machine: %w", err))
	} else if memory.MemTotalBytes != nil && memory.MemAvailableBytes != nil {
		gauge("host_memory_bytes", "Memory of the machine.", float64(*memory.MemTotalBytes))
		gauge("host_memory_available_bytes", "Memory of the machine that programs can still get.", float64(*memory.MemAvailableBytes))
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		errs = append(errs, fmt.Errorf("read the size of the disk: %w", err))
	} else {
		block := float64(disk.Bsize)
		gauge("host_disk_bytes", "Size of the file system that the provider keeps its files on.", float64(disk.Blocks)*block)
		gauge("host_disk_available_bytes", "Bytes that can still be written there.", float64(disk.Bavail)*block)
	}
	return all, errors.Join(errs...)
}
