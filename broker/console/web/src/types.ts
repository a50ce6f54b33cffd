// The shapes of the broker's JSON that the page uses; /openapi.json has all of them.
import type { Diagnostic } from "./api";

export interface Field {
  position: number; type: string; required: boolean; secret: boolean; file_only: boolean; label: string;
  description?: string; placeholder?: string; default?: unknown; options?: string[]; min?: number; max?: number; pattern?: string;
  items?: { type: string; options?: string[] }; fields?: Record<string, Field>; repeated?: boolean;
}

export interface Provider {
  id: string; name: string; description: string; tags: string[]; active: boolean; supported_languages: string[]; capabilities: string[];
  config_schema: Record<string, Field>; plugin: { name: string; version: string; file: string };
  state: string; healthy: boolean; reason?: string; since: string; restarts: number; draining: number; details?: Record<string, string>;
  last_error?: { message: string; at: string; stderr?: string };
  circuit: { state: string; failures: number; until?: string; creation_seconds?: number };
}

export type Settings = Record<string, unknown>;
export interface Origin { origin: string; name?: string; masked: boolean }

export interface Reload {
  result: string; generation: number; at: string; took_ms: number; trigger: string; operation?: string; restorable?: boolean;
  change: {
    providers: { provider: string; action: string; draining: number }[];
    tenants_added: string[]; tenants_removed: string[]; tenants_changed: string[]; settings: string[];
  };
  diagnostics: Diagnostic[];
}

export interface Config {
  data: Record<string, Settings | string>;
  meta: {
    fallback: string[]; generation: number; revision: string; files: string[]; writable: boolean; read_only?: string; differs: boolean; seals: boolean;
    origins: Record<string, Record<string, Origin>>; last_refused?: Reload;
  };
}

export interface Status {
  version: string; started_at: string; uptime_seconds: number; generation: number; accepted_at: string; active: string; fallback: string[];
  providers: { id: string; state: string; healthy: boolean; reason?: string; draining: number }[];
  instances: Record<string, number>; last_reload?: Reload;
}

/** Changed is the answer to a change, and to a dry run of one. */
export interface Changed { message?: string; data?: Reload; reload?: Reload; difference?: string }

export interface Trial { success: boolean; message: string; latency_ms: number; code?: string; field?: string; details: Record<string, string>; diagnostics?: Diagnostic[] }

export interface Tenant { name: string; providers: string[]; tokens: { id: string }[]; quota: Record<string, number> }
export interface UsageLine { name: string; used?: number; limit?: number; resets_at?: string }
export interface Usage { tenant: string; limits: UsageLine[]; waiting: number }

export interface Instance {
  tenant: string; id: string; session_id: string; provider: string; template: string; state: string; labels?: Record<string, string>;
  metadata?: Record<string, string>; created_at: string; last_used_at: string; expires_at: string; executions: number; front_door?: string; broker?: string;
}

export interface Metrics {
  measured_at?: string; cpu_time?: number; cpu_limit?: number; memory_mb?: number; memory_limit_mb?: number;
  disk_mb?: number; disk_limit_mb?: number; processes?: number; process_limit?: number;
}

export interface Series { name: string; label: string; unit: string; points: (number | null)[] }
export interface History { step_seconds: number; from: string; to: string; series: Series[] }

export interface Chain { state: string; lines?: number; checked_at?: string; detail?: string }
export interface AuditPage { data: Record<string, unknown>[]; next?: string; chain: Chain }
