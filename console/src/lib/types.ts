// The parts of the admin API that the console reads. docs/reference/admin-api.md
// says what they mean.

export interface Attention {
  code: string;
  severity: 'critical' | 'warning' | 'notice';
  service?: string;
  locality?: string;
  client?: string;
  text: string;
  next?: string;
}

export interface Status {
  ok: boolean;
  made?: string; // of the plan; missing before the first
  attention: Attention[];
  services: number;
  demand: number;
  coverage: number;
  clients: { total: number; in_sync: number; behind: number; refusing: number; reporting: number };
  checkers: number;
  stopping?: boolean;
  n1?: { services: number; failing: number; at_limit?: number; worst: Reserve[] };
}

export interface Reserve {
  service: string;
  lost: string;
  fullest: string;
  utilization: number;
  ceiling: number;
  headroom: number;
  drop: number;
}

export interface ServiceRow {
  name: string;
  mode: string;
  serves: string;
  demand: number;
  fullest?: { locality: string; utilization: number; ceiling: number };
  healthy: number;
  draining?: number; // missing in what an older server answers
  endpoints: number;
  shift: number;
  moving: number;
  drop: number;
  hold?: string;
  paused?: unknown;
  gap: number;
  coverage: number;
  score?: number;
  cross_zone: number;
  cross_region: number;
  egress_ms: number;
  p99_ms: number;
}

export interface FleetLine {
  version?: string;
  whole?: boolean;
  status?: Status;
  services?: ServiceRow[];
}

export type CapacityBasis = 'declared' | 'estimated' | 'assumed' | '';

export interface Site {
  locality: string;
  endpoints: number;
  healthy: number;
  draining?: number; // missing in what an older server answers
  capacity: number;
  capacity_basis?: CapacityBasis;
  ceiling: number;
  load: number;
  unmanaged_load: number;
  utilization: number;
  price_ms: number;
  unreachable?: boolean;
}

export interface Source {
  source: string;
  demand: number;
  shares: { locality: string; target: number; published: number }[];
}

export interface Service {
  name: string;
  mode: string;
  policy: string;
  coverage: number;
  hold?: string;
  paused?: unknown;
  gap: number;
  plan_gap: number;
  drop: number;
  ceiling_scale: number;
  checked: boolean; // it has health checks
  localities: Site[];
  sources: Source[];
  health_overrides?: { address: string; locality: string; status: string }[];
}

export interface Access {
  writable: boolean;
  token: 'none' | 'writes' | 'all';
  shown: boolean;
}

export interface ServiceLine {
  version?: string;
  made?: string;
  state?: string;
  service?: Service | null;
}

export interface LocalityWhy {
  locality: string;
  tier: number;
  distance_ms: number;
  assumed?: boolean;
  price_ms: number;
  cost_ms: number;
  endpoints: number;
  healthy: number;
  draining?: number; // missing in what an older server answers
  capacity: number;
  ceiling: number;
  limit: number;
  unmanaged_load: number;
  load: number;
  utilization: number;
  measured: number;
  counts: string;
  target_share: number;
  published_share: number;
  observed_share: number;
  egress_ms?: number;
  observed?: string;
  outage?: string;
  forbidden?: boolean;
  barred?: boolean;
  unreachable?: boolean;
  drained?: boolean;
  full?: boolean;
}

export interface Explanation {
  service: string;
  source: string;
  version: string;
  made: string;
  summary: string;
  hold?: string;
  gap: number;
  plan_gap: number;
  earlier_decision?: string; // of which prices, costs and targets are
  demand: { rate: number; raw: number; nodes: number; held: number; service: number; measured: boolean; variability: number; report_age_seconds?: number };
  localities: LocalityWhy[];
  binding: { kind: string; locality?: string; text: string };
  runner_up?: { locality: string; worse_ms: number };
  reasons: { locality?: string; text: string }[];
  deviation?: Deviation;
  warnings: string[];
  clients: { client: string; rate: number }[];
}

/** What a locality can serve, and why the plan goes by that. */
export interface CapacityWhy {
  locality: string;
  declared?: number;
  in_use: number;
  why: string;
}

export interface Verdict {
  address: string;
  locality?: string;
  status: string;
  frozen?: boolean; // too few fresh votes confirm or change it
  pending?: boolean; // no traffic until the first verdict
  held?: boolean; // voted down, and not believed yet
  why?: string;
  since?: string;
  votes?: { checker: string; status: string; domain?: string }[];
}

export interface ClientType {
  subscribed: number;
  sent_version: string;
  acked_version: string;
  age_seconds: number;
  in_sync: boolean;
  waiting?: boolean;
  waiting_seconds?: number;
  rejected?: number;
  missing?: number;
  last_nack?: { version: string; text: string; at: string };
}

export interface Client {
  id: string;
  cluster: string;
  locality: string;
  agent: string;
  api_version: string;
  peer: string;
  connected_since: string;
  types: Record<string, ClientType>;
  in_sync: boolean;
  lrs?: { last_report: string; rejected: number; reason?: string };
  reports_to?: string; // the other replica that gets its load reports
  missing?: { name: string; nearest?: string[] }[];
  deviates?: ({ service: string; points: number } & Destination)[];
}

/** Where a client that does not follow its weights sends most of its requests. */
export interface Destination {
  to?: string; // missing in what an older server answers
  to_share?: number;
}

/** Clients of a locality do not follow the weights of a service; clients are those that stand out. */
export interface Deviation {
  points: number;
  cause: string;
  clients_only?: boolean; // the locality as a whole follows, as far as is known
  clients?: ({ node: string; cluster: string; rate: number; points: number } & Destination)[];
  others?: number;
}

export interface ClientList {
  clients: Client[];
  deviating?: (Deviation & { service: string; locality: string; text: string })[];
}

export interface Checker {
  id: string;
  locality: string;
  agent: string;
  peer: string;
  since: string;
  protocols: string;
  designated: number;
  last_report?: string;
  rejected: number;
  reason?: string;
}

/** A path from the checkers of a zone to endpoints, on which probes fail. */
export interface Path {
  from: string;
  to: string;
  endpoints: number;
  services: string[];
  reached: string[];
  since?: string;
}

export interface Replica {
  name: string;
  live: boolean;
  leads?: boolean;
  caretaker?: boolean;
  heard_seconds_ago?: number;
  failure?: string;
  isobar_version?: string;
  engine_reached: boolean;
  plan_version: number;
  plan_age_seconds: number;
  discovery_streams: number;
  load_report_streams: number;
  checkers: number;
  clients: number;
  clients_in_sync: number;
  config_digest?: string;
  unreachable?: string[];
}

export interface Group {
  group: string;
  name: string;
  role: string;
  since: string;
  leader?: string;
  awaits?: string; // where no leader is known, and the engine names one: which, and what has to happen
  epoch: number;
  engine_reached: boolean;
  engine_behind?: boolean;
  removes: boolean;
  failures_to_spare: number;
  configuration_agreed: boolean;
  replicas: Replica[];
  alarms?: string[];
}

export interface Timeline {
  version: string;
  begin: string;
  step_seconds: number;
  oldest?: string;
  changes: number[];
  moved: number[];
  triggers: string[];
}

export interface Shares {
  drop: number;
  localities: string[];
  sources: { source: string; shares: number[] }[];
}

export interface Moment {
  version: string;
  at: string;
  change?: ChangeMark;
  before?: string;
  next?: string;
  number: number;
  count: number;
  shares?: Shares;
}

/** What changed between two moments, largest first. */
export interface Span {
  version: string;
  from: string;
  to: string;
  count: number;
  changes: ChangeMark[];
  before?: string;
  next?: string;
}

/** What differs after a span from before it. */
export interface NetChange {
  version: string;
  from: string;
  to: string;
  count: number;
  counted: number; // of count, the newest
  since?: string; // when the first that is counted was made
  event_count: number; // changes of health, of the configuration and by operators
  events: ChangeMark[]; // of those, the 5 largest, largest first
  service_count: number;
  services: NetService[]; // the largest difference first
}

export interface NetService {
  service: string;
  removed?: boolean; // it does not exist now
  changes: number;
  drop_before?: number;
  drop_after?: number;
  rate?: number; // requests/s that go elsewhere
  reasons: { made: string; trigger: string; text: string }[];
  move_count: number;
  moves: NetMove[]; // the largest difference first
}

/** The share that a source sends to a locality; before or after is missing where the source is not there. */
export interface NetMove {
  source: string;
  locality: string;
  before?: number;
  after?: number;
  low: number;
  high: number;
  changes: number;
  rate?: number; // requests/s more, or fewer
}

export interface Change {
  version: number;
  previous: number;
  made: string;
  trigger: string;
  who?: string;
  reason?: string;
  about?: string;
  services: {
    service: string;
    reason: string;
    drop_before?: number;
    drop_after?: number;
    localities: string[];
    sources: { source: string; before?: number[]; after?: number[] }[];
  }[];
}

export interface Flow {
  from: string;
  to: string;
  rate: number;
  price_ms: number;
}

/** A zone that can be lost; loss is missing where that was not played. */
export interface FlowZone {
  zone: string;
  serves: number;
  loss?: { services: number; failing: number; alone: number; at_limit: number; fullest?: Reserve; worst: Reserve[] };
}

export interface FlowList {
  version: string;
  places: { place: string; sends: number; serves: number; hosts: boolean }[];
  zones: FlowZone[];
  loss_age_seconds?: number;
  loss_outdated?: boolean;
  flows: Flow[];
}

export interface ChangeMark {
  version: number;
  previous: number;
  made: string;
  trigger: string;
  who?: string;
  reason?: string;
  about?: string;
  services: number;
  moved: number;
  most?: string;
  why?: string;
}

/** Lists of equal length, a value a step; null where there is no sample. */
export interface Samples {
  service?: string;
  begin: string;
  step_seconds: number;
  demand: (number | null)[];
  drop: (number | null)[];
  gap: (number | null)[];
  cross_zone: (number | null)[];
  cross_region: (number | null)[];
  localities: { locality: string; utilization: (number | null)[] }[];
  marks?: { at: string; text: string }[];
}

export interface Three {
  before: number;
  first: number;
  settled: number;
}

export interface Difference {
  version: string;
  settled: boolean;
  ticks: number;
  same: number;
  latency_ms: Three;
  shed: Three;
  moved: number;
  risks?: { service: string; locality?: string; text: string }[];
  refusals?: string[];
  unchecked?: string;
  services: {
    service: string;
    change: string;
    hold?: string;
    dead?: boolean;
    drop: Three;
    latency_ms: Three;
    moved: number;
    localities: { locality: string; utilization: Three; ceiling: number; declared: boolean; capacity_basis?: CapacityBasis }[];
    sources: { source: string; demand: number; shares: { locality: string; share: Three }[] }[];
  }[];
}

export interface Problem {
  error: string;
  place?: string;
  fix?: string;
  problems?: Problem[];
}
