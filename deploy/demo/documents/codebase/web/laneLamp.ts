/** Colour of the lamp above a tunnel, as the panel in the browser shows it. The rules are those of the operator's page. */

export type Lamp = "green" | "yellow" | "red";

export interface LaneState {
  tunnel: string;
  lastHundred: boolean[];
  connected: boolean;
  parkedCount: number;
}

const YELLOW_BELOW = 0.98;
const RED_BELOW = 0.95;

/** Share of parcels with a read. An empty window counts as good, so that a tunnel at rest is green. */
export function readRate(state: LaneState): number {
  if (state.lastHundred.length === 0) return 1;
  return state.lastHundred.filter(Boolean).length / state.lastHundred.length;
}

export function lampOf(state: LaneState): Lamp {
  if (!state.connected) return "red";
  const rate = readRate(state);
  if (rate < RED_BELOW) return "red";
  return rate < YELLOW_BELOW ? "yellow" : "green";
}

/** Keeps the newest hundred parcels of a lane and counts what is parked. */
export class LaneWindow {
  private readonly hits: boolean[] = [];
  private parked = 0;

  constructor(private readonly tunnel: string, private readonly size = 100) {}

  push(read: boolean): void {
    this.hits.push(read);
    if (this.hits.length > this.size) this.hits.shift();
  }

  onRetryLimit(): void {
    this.parked += 1;
  }

  state(connected: boolean): LaneState {
    return { tunnel: this.tunnel, lastHundred: [...this.hits], connected, parkedCount: this.parked };
  }
}

/** Text beside the lamp. ERR-9004 wins over ERR-9012, because without a connection everything is parked. */
export function panelText(state: LaneState): string {
  if (!state.connected) return `ERR-9004 ${state.tunnel}`;
  if (state.parkedCount > 0) return `ERR-9012 ${state.tunnel} ${state.parkedCount}`;
  return lampOf(state) === "red" ? `ERR-9001 ${state.tunnel}` : "";
}
